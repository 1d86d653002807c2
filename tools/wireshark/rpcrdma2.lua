-- SPDX-License-Identifier: GPL-2.0
--
-- RPC-over-RDMA Version Two (draft-ietf-nfsv4-rpcrdma-version-two-07) for Wireshark
-- and tshark, over RoCEv2, InfiniBand and iWARP; and the protocol of 2016 with the same
-- number (draft-cel-nfsv4-rpcrdma-version-two-01, draft-dnoveck-nfsv4-rpcrdma-xcharext-03):
--
--   tshark -X lua_script:tools/wireshark/rpcrdma2.lua -r FILE
--
-- Version One is Wireshark's own business: it knows that as "rpcordma". What is
-- recognised here is a message whose second word is 2 and whose header makes sense
-- to its end, and the error that answers a version beyond 2. The README beside this
-- file says what is shown, and what is not.

local rpcrdma2 = Proto("rpcrdma2", "RPC-over-RDMA Version Two")

local VERSION = 2
local PREFIX_LEN = 16
-- What ERR_VERS takes up, with the lowest and the highest version (section 7).
local ERR_VERS_LEN = 28
-- So many octets that went by RDMA are filled in before the RPC dissector is called.
local RDMA_MAX = 4 * 1024 * 1024

local ERROR, GRANT, CONNPROP_MIDDLE, CONNPROP_FINAL = 4, 5, 6, 7
local CALL_EXTERNAL, CALL_MIDDLE, CALL_INLINE = 8, 9, 10
local REPLY_EXTERNAL, REPLY_MIDDLE, REPLY_INLINE = 11, 12, 13
-- Of 2016. OPTIONAL has the number of GRANT and is longer: its least size.
local MSG, NOMSG, OPTIONAL, OPTIONAL_LEN = 0, 1, 5, 28

local htypes = {
	[MSG] = "RDMA2_MSG",
	[NOMSG] = "RDMA2_NOMSG",
	[ERROR] = "RDMA2_ERROR",
	[GRANT] = "RDMA2_GRANT, or RDMA2_OPTIONAL",
	[CONNPROP_MIDDLE] = "RDMA2_CONNPROP_MIDDLE",
	[CONNPROP_FINAL] = "RDMA2_CONNPROP_FINAL",
	[CALL_EXTERNAL] = "RDMA2_CALL_EXTERNAL",
	[CALL_MIDDLE] = "RDMA2_CALL_MIDDLE",
	[CALL_INLINE] = "RDMA2_CALL_INLINE",
	[REPLY_EXTERNAL] = "RDMA2_REPLY_EXTERNAL",
	[REPLY_MIDDLE] = "RDMA2_REPLY_MIDDLE",
	[REPLY_INLINE] = "RDMA2_REPLY_INLINE",
}

local ERR_VERS, ERR_READ_CHUNKS, ERR_WRITE_CHUNKS, ERR_SEGMENTS = 1, 6, 7, 8
local ERR_WRITE_RESOURCE, ERR_REPLY_RESOURCE = 9, 10

local errors = {
	[ERR_VERS] = "RDMA2_ERR_VERS",
	[2] = "RDMA2_ERR_BAD_XDR",
	[3] = "RDMA2_ERR_BAD_PROPVAL",
	[4] = "RDMA2_ERR_INVAL_HTYPE",
	[5] = "RDMA2_ERR_INVAL_CONT",
	[ERR_READ_CHUNKS] = "RDMA2_ERR_READ_CHUNKS",
	[ERR_WRITE_CHUNKS] = "RDMA2_ERR_WRITE_CHUNKS",
	[ERR_SEGMENTS] = "RDMA2_ERR_SEGMENTS",
	[ERR_WRITE_RESOURCE] = "RDMA2_ERR_WRITE_RESOURCE",
	[ERR_REPLY_RESOURCE] = "RDMA2_ERR_REPLY_RESOURCE",
	[11] = "RDMA2_ERR_VERS_MISMATCH",
	[100] = "RDMA2_ERR_SYSTEM",
}

-- The same of 2016, where other things have the same numbers.
local errors_2016 = {
	[ERR_VERS] = "RDMA2_ERR_VERS",
	[2] = "RDMA2_ERR_BAD_HEADER",
	[3] = "RDMA2_ERR_INVAL_OPTION",
}

local directions = { [0] = "CALL", [1] = "REPLY" }

local OP_CONNPROP, OP_REQPROP, OP_RESPROP, OP_UPDPROP = 1, 2, 3, 4

local operations = {
	[OP_CONNPROP] = "ROPT_CONNPROP",
	[OP_REQPROP] = "ROPT_REQPROP",
	[OP_RESPROP] = "ROPT_RESPROP",
	[OP_UPDPROP] = "ROPT_UPDPROP",
}

local properties_2016 = {
	[1] = "Receive Buffer Size",
	[2] = "Requester Remote Invalidation",
	[3] = "Reverse-Direction Support",
}

local PROP_BRS, PROP_HOSTAUTH = 5, 6

local properties = {
	[1] = "Maximum Send Size",
	[2] = "Receive Buffer Size",
	[3] = "Maximum RDMA Segment Size",
	[4] = "Maximum RDMA Segment Count",
	[PROP_BRS] = "Reverse-Direction Support",
	[PROP_HOSTAUTH] = "Host Authentication Message",
}

local levels = { [0] = "none", [1] = "simple", [2] = "continuation", [3] = "general" }

local f = rpcrdma2.fields
f.xid = ProtoField.uint32("rpcrdma2.xid", "Transaction ID", base.HEX)
f.vers = ProtoField.uint32("rpcrdma2.vers", "Version")
f.credit = ProtoField.uint32("rpcrdma2.credit", "Credit limit")
f.htype = ProtoField.uint32("rpcrdma2.htype", "Header type", base.DEC, htypes)
f.direction = ProtoField.uint32("rpcrdma2.direction", "Direction", base.DEC, directions)
f.optype = ProtoField.uint32("rpcrdma2.opttype", "Operation", base.DEC, operations)
f.err_2016 = ProtoField.uint32("rpcrdma2.err_2016", "Error", base.DEC, errors_2016)
f.prop_2016 = ProtoField.uint32("rpcrdma2.prop_2016.id", "Property", base.DEC, properties_2016)
f.set = ProtoField.none("rpcrdma2.propset", "Properties")
f.subset = ProtoField.none("rpcrdma2.propsubset", "Elements of a set")
f.bits = ProtoField.uint32("rpcrdma2.propsubset.word", "Word", base.HEX)
f.optinfo = ProtoField.bytes("rpcrdma2.optinfo", "Content that is not known")
f.inv_handle = ProtoField.uint32("rpcrdma2.inv_handle", "Handle to invalidate", base.HEX)
f.remaining = ProtoField.uint32("rpcrdma2.remaining", "Octets that remain")
f.call = ProtoField.none("rpcrdma2.call_chunk", "Call chunk")
f.reads = ProtoField.none("rpcrdma2.read_list", "Read list")
f.writes = ProtoField.none("rpcrdma2.write_list", "Write list")
f.reply = ProtoField.none("rpcrdma2.reply_chunk", "Reply chunk")
f.chunk = ProtoField.none("rpcrdma2.write_chunk", "Write chunk")
f.segment = ProtoField.none("rpcrdma2.segment", "Segment")
f.position = ProtoField.uint32("rpcrdma2.position", "Position")
f.handle = ProtoField.uint32("rpcrdma2.handle", "Handle", base.HEX)
f.length = ProtoField.uint32("rpcrdma2.length", "Length")
f.offset = ProtoField.uint64("rpcrdma2.offset", "Offset", base.HEX)
f.err = ProtoField.uint32("rpcrdma2.err", "Error", base.DEC, errors)
f.low = ProtoField.uint32("rpcrdma2.err.vers_low", "Lowest version")
f.high = ProtoField.uint32("rpcrdma2.err.vers_high", "Highest version")
f.max_chunks = ProtoField.uint32("rpcrdma2.err.max_chunks", "Chunks at most")
f.max_segments = ProtoField.uint32("rpcrdma2.err.max_segments", "Segments at most")
f.chunk_index = ProtoField.uint32("rpcrdma2.err.chunk_index", "Index of the chunk")
f.needed = ProtoField.uint32("rpcrdma2.err.length_needed", "Octets needed")
f.prop = ProtoField.none("rpcrdma2.prop", "Property")
f.propid = ProtoField.uint32("rpcrdma2.prop.id", "Property", base.DEC, properties)
f.propval = ProtoField.uint32("rpcrdma2.prop.value", "Value")
f.brs = ProtoField.uint32("rpcrdma2.prop.brs", "Level", base.DEC, levels)
f.propdata = ProtoField.bytes("rpcrdma2.prop.data", "Data")
f.part = ProtoField.bytes("rpcrdma2.part", "Part of an RPC message")
f.part_of = ProtoField.framenum("rpcrdma2.complete_in", "RPC message complete in")
f.parts = ProtoField.uint32("rpcrdma2.parts", "Parts of the RPC message")
f.by_rdma = ProtoField.uint32("rpcrdma2.by_rdma", "Octets that went by RDMA, filled in")
f.absent = ProtoField.uint32("rpcrdma2.absent", "Octets that went by RDMA unseen, in their place zeros")
f.packet = ProtoField.none("rpcrdma2.packet", "Packet of a message")
f.packet_of = ProtoField.framenum("rpcrdma2.message_in", "Message complete in")
f.again = ProtoField.framenum("rpcrdma2.sent_again", "The same packet as in")

rpcrdma2.prefs.keep = Pref.bool("Keep what goes by RDMA", true,
	"Data in RDMA Writes and Read Responses are kept in memory and shown with the message that they belong to")

local cut_short = ProtoExpert.new("rpcrdma2.sequence.broken", "Parts do not add up",
	expert.group.SEQUENCE, expert.severity.WARN)
rpcrdma2.experts = { cut_short }

-- Raised by `reader` when the header goes beyond the message.
local SHORT = {}

-- Reads XDR from a buffer and, unless `tree` is nil, shows what it reads.
local function reader(tvb, at)
	-- Also the segments of data that are not in the message: those of the Read list, those
	-- of each Write chunk, and those of the Reply chunk.
	local r = { at = at, call = {}, reads = {}, writes = {}, reply = {} }

	function r.word()
		if r.at + 4 > tvb:len() then
			error(SHORT)
		end
		r.at = r.at + 4
		return tvb(r.at - 4, 4)
	end

	function r.show(tree, field)
		local range = r.word()
		if tree then
			tree:add(field, range)
		end
		return range:uint()
	end

	-- An optional item: only 0 and 1 are booleans.
	function r.follows()
		local value = r.word():uint()
		if value > 1 then
			error(SHORT)
		end
		return value == 1
	end

	return r
end

-- A tree for what `inner` reads, with the right length.
local function subtree(r, tvb, tree, field, text, inner)
	local start, sub = r.at, nil
	if tree then
		sub = tree:add(field, tvb(start, 0))
	end
	local more = inner(sub)
	if sub then
		sub:set_len(r.at - start)
		sub:set_text(text .. (more or ""))
	end
end

-- Returns the segment. Offsets have 64 bits, which not every Lua can reckon with.
local function segment(r, tvb, tree, position)
	local read = {}
	subtree(r, tvb, tree, f.segment, "Segment: ", function(sub)
		read.position = position and r.show(sub, f.position)
		read.handle = r.show(sub, f.handle)
		read.length = r.show(sub, f.length)
		if r.at + 8 > tvb:len() then
			error(SHORT)
		end
		local offset = tvb(r.at, 8)
		if sub then
			sub:add(f.offset, offset)
		end
		read.high, read.low = tvb(r.at, 4):uint(), tvb(r.at + 4, 4):uint()
		r.at = r.at + 8
		return string.format("%u octets at 0x%08x:0x%s%s", read.length, read.handle,
			tostring(offset:bytes()),
			read.position and string.format(", position %u", read.position) or "")
	end)
	return read
end

local function read_list(r, tvb, tree, field, name)
	subtree(r, tvb, tree, field, name, function(sub)
		local count = 0
		while r.follows() do
			local read = segment(r, tvb, sub, true)
			table.insert(field == f.reads and r.reads or r.call, read)
			count = count + 1
		end
		return string.format(": %u segments", count)
	end)
end

-- Returns its segments.
local function write_chunk(r, tvb, tree, field, name)
	local segments = {}
	subtree(r, tvb, tree, field, name, function(sub)
		local count = r.word():uint()
		-- Before the loop: a count from the wire must not keep us busy.
		if count > (tvb:len() - r.at) / 16 then
			error(SHORT)
		end
		for _ = 1, count do
			table.insert(segments, segment(r, tvb, sub, false))
		end
		return string.format(": %u segments", count)
	end)
	return segments
end

local function write_list(r, tvb, tree, name)
	subtree(r, tvb, tree, f.writes, name, function(sub)
		local count = 0
		while r.follows() do
			table.insert(r.writes, write_chunk(r, tvb, sub, f.chunk, "Write chunk"))
			count = count + 1
		end
		return string.format(": %u chunks", count)
	end)
end

local function reply_chunk(r, tvb, tree, name)
	if r.follows() then
		r.reply = write_chunk(r, tvb, tree, f.reply, name)
	end
end

-- Whether the message in hand is of a connection that speaks the protocol of 2016.
local is_2016 = false

-- A set of properties of 2016.
local function propset(r, tvb, tree, name)
	subtree(r, tvb, tree, f.set, name, function(sub)
		local count = r.word():uint()
		if count > (tvb:len() - r.at) / 8 then
			error(SHORT)
		end
		local shown = {}
		for _ = 1, count do
			local id = r.show(sub, f.prop_2016)
			local length = r.word():uint()
			local padded = length + -length % 4
			if padded > tvb:len() - r.at then
				error(SHORT)
			end
			local value = string.format("%u octets", length)
			if length == 4 then
				value = tostring(tvb(r.at, 4):uint())
			end
			if sub and length > 0 then
				sub:add(length == 4 and f.propval or f.propdata, tvb(r.at, length))
			end
			r.at = r.at + padded
			table.insert(shown, string.format("%s = %s",
				properties_2016[id] or ("unknown (" .. id .. ")"), value))
		end
		return ": " .. (count == 0 and "none" or table.concat(shown, ", "))
	end)
end

-- Which elements of a set are meant, counted from zero.
local function propsubset(r, tvb, tree, name)
	subtree(r, tvb, tree, f.subset, name, function(sub)
		local count = r.word():uint()
		if count > (tvb:len() - r.at) / 4 then
			error(SHORT)
		end
		local shown = {}
		for word = 0, count - 1 do
			local bits = r.show(sub, f.bits)
			for bit = 0, 31 do
				if math.floor(bits / 2 ^ bit) % 2 == 1 then
					table.insert(shown, tostring(word * 32 + bit))
				end
			end
		end
		return ": " .. (#shown == 0 and "none" or table.concat(shown, ", "))
	end)
end

-- Returns what is to be said of an OPTIONAL message.
local function optional(r, tvb, tree)
	local dir = r.show(tree, f.direction)
	local op = r.show(tree, f.optype)
	local length = r.word():uint()
	local ends = r.at + length + -length % 4
	if dir > 1 or ends > tvb:len() then
		error(SHORT)
	end
	if op == OP_CONNPROP then
		propset(r, tvb, tree, "Properties")
		propsubset(r, tvb, tree, "Not expected to change")
	elseif op == OP_REQPROP or op == OP_UPDPROP then
		propset(r, tvb, tree, op == OP_REQPROP and "Wanted" or "Changed")
	elseif op == OP_RESPROP then
		propsubset(r, tvb, tree, "Done")
		propsubset(r, tvb, tree, "Rejected")
		propset(r, tvb, tree, "Other values")
	else
		if tree and length > 0 then
			tree:add(f.optinfo, tvb(r.at, length))
		end
		-- Perhaps an RPC message follows; nobody knows.
		r.at, ends = tvb:len(), tvb:len()
	end
	if r.at ~= ends then
		error(SHORT)
	end
	return string.format(", %s, %s", operations[op] or ("operation " .. op), directions[dir])
end

-- Reads what is behind the prefix of a message with chunk lists of 2016. Returns the header
-- type of -07 that has the same in it.
local function with_lists(r, tvb, tree, htype)
	local dir = r.show(tree, f.direction)
	if dir > 1 then
		error(SHORT)
	end
	read_list(r, tvb, tree, f.reads, "Read list")
	write_list(r, tvb, tree, dir == 0 and "Provisional Write list" or "Write list")
	reply_chunk(r, tvb, tree, "Reply chunk")
	if htype == MSG then
		return dir == 0 and CALL_INLINE or REPLY_INLINE
	end
	-- The message is in what has position zero.
	local rest = {}
	for _, read in ipairs(r.reads) do
		table.insert(read.position == 0 and r.call or rest, read)
	end
	r.reads = rest
	return dir == 0 and CALL_EXTERNAL or REPLY_EXTERNAL
end

local function connprop(r, tvb, tree)
	local count = r.word():uint()
	if count > (tvb:len() - r.at) / 8 then
		error(SHORT)
	end
	for _ = 1, count do
		subtree(r, tvb, tree, f.prop, "Property: ", function(sub)
			local id = r.show(sub, f.propid)
			local length = r.word():uint()
			local padded = length + -length % 4
			if padded > tvb:len() - r.at then
				error(SHORT)
			end
			local value = ""
			if length == 4 and id ~= PROP_HOSTAUTH then
				local number = tvb(r.at, 4):uint()
				value = tostring(number)
				if id == PROP_BRS then
					value = levels[number] or value
				end
				if sub then
					sub:add(id == PROP_BRS and f.brs or f.propval, tvb(r.at, 4))
				end
			else
				value = string.format("%u octets", length)
				if sub and length > 0 then
					sub:add(f.propdata, tvb(r.at, length))
				end
			end
			r.at = r.at + padded
			return string.format("%s = %s", properties[id] or ("unknown (" .. id .. ")"), value)
		end)
	end
end

local function error_body(r, tree)
	local code = r.show(tree, is_2016 and f.err_2016 or f.err)
	if code == ERR_VERS then
		r.show(tree, f.low)
		r.show(tree, f.high)
	elseif is_2016 then
		return errors_2016[code] or ("error " .. code)
	elseif code == ERR_READ_CHUNKS or code == ERR_WRITE_CHUNKS then
		r.show(tree, f.max_chunks)
	elseif code == ERR_SEGMENTS then
		r.show(tree, f.max_segments)
	elseif code == ERR_WRITE_RESOURCE then
		r.show(tree, f.chunk_index)
		r.show(tree, f.needed)
	elseif code == ERR_REPLY_RESOURCE then
		r.show(tree, f.needed)
	end
	return errors[code] or ("error " .. code)
end

-- Reads a whole header. Returns the reader that is at its end; in it are the header
-- type, how many octets of the RPC message remain, and what is to be said of the
-- header in one line.
local function header(tvb, tree)
	local r = reader(tvb, 0)
	local xid = r.show(tree, f.xid)
	local vers = r.show(tree, f.vers)
	local credit = r.show(tree, f.credit)
	local htype = r.show(tree, f.htype)
	local remaining, more, kind, name = 0, "", htype, htypes[htype]

	if htype == MSG or htype == NOMSG then
		kind = with_lists(r, tvb, tree, htype)
		more = (kind == CALL_INLINE or kind == CALL_EXTERNAL) and ", CALL" or ", REPLY"
	elseif htype == OPTIONAL and tvb:len() >= OPTIONAL_LEN then
		more, name = optional(r, tvb, tree), "RDMA2_OPTIONAL"
	elseif htype == GRANT then
		name = "RDMA2_GRANT"
	elseif htype == ERROR then
		more = ", " .. error_body(r, tree)
	elseif htype == CONNPROP_MIDDLE or htype == CONNPROP_FINAL then
		connprop(r, tvb, tree)
	elseif htype == CALL_EXTERNAL or htype == CALL_INLINE then
		r.show(tree, f.inv_handle)
		if htype == CALL_EXTERNAL then
			read_list(r, tvb, tree, f.call, "Call chunk")
		end
		read_list(r, tvb, tree, f.reads, "Read list")
		write_list(r, tvb, tree, "Provisional Write list")
		reply_chunk(r, tvb, tree, "Provisional Reply chunk")
	elseif htype == CALL_MIDDLE or htype == REPLY_MIDDLE then
		remaining = r.show(tree, f.remaining)
		more = string.format(", %u octets remain", remaining)
	elseif htype == REPLY_EXTERNAL or htype == REPLY_INLINE then
		write_list(r, tvb, tree, "Write list")
		if htype == REPLY_EXTERNAL then
			reply_chunk(r, tvb, tree, "Reply chunk")
		end
	end
	if vers ~= VERSION then
		more = more .. string.format(" to version %u", vers)
	end
	r.htype, r.remaining = kind, remaining
	r.line = string.format("%s xid 0x%08x credits %u%s", name, xid, credit, more)
	return r
end

-- Whether a message may begin so, by the version and the header type.
local function begins(tvb)
	if tvb:len() < PREFIX_LEN or not htypes[tvb(12, 4):uint()] then
		return false
	end
	local vers = tvb(4, 4):uint()
	-- The answer to a version that is not spoken has that version.
	return vers == VERSION or vers > VERSION and tvb:len() == ERR_VERS_LEN
		and tvb(12, 4):uint() == ERROR and tvb(16, 4):uint() == ERR_VERS
end

-- Whether the header makes sense to its end.
local function sensible(tvb)
	if not begins(tvb) then
		return false
	end
	local ok, r = pcall(header, tvb, nil)
	if not ok then
		if r == SHORT then
			return false
		end
		error(r, 0)
	end
	-- RPC messages are behind these only.
	local carries = r.htype == CALL_MIDDLE or r.htype == REPLY_MIDDLE
		or r.htype == CALL_INLINE or r.htype == REPLY_INLINE
	return carries == (r.at < tvb:len())
end

-- What is remembered of frames, since each may be looked at more than once, and in any
-- order after the first time. All of it is forgotten when another file is opened:
-- sequences that are under way, and the parts of messages by id; messages in packets
-- that are under way, and the packets by id; the frame that a packet came in first; what
-- went by RDMA by handle, the RDMA Writes and Reads that are under way, and the Read
-- Requests; the Calls that went by Call chunk; the hosts that speak the protocol of 2016 with
-- each other, as far as their messages tell.
local sequences, parts, messages, packets, first_in, pieces, transfers, requests, external, speak_2016

local function forget()
	sequences, parts, messages, packets, first_in = {}, {}, {}, {}, {}
	pieces, transfers, requests, external, speak_2016 = {}, {}, {}, {}, {}
end
forget()
rpcrdma2.init = forget

-- The direction of a connection that a frame belongs to.
local function direction(pinfo)
	return string.format("%s:%s>%s:%s", tostring(pinfo.src), tostring(pinfo.src_port),
		tostring(pinfo.dst), tostring(pinfo.dst_port))
end

-- Notes which protocol two hosts speak, if a message is of one of them only. An error is of
-- that which their messages before were of.
local function note_dialect(tvb, pinfo)
	local from, to = tostring(pinfo.src), tostring(pinfo.dst)
	local key = from < to and from .. ">" .. to or to .. ">" .. from
	local htype = tvb(12, 4):uint()
	if htype == MSG or htype == NOMSG or htype == OPTIONAL and tvb:len() >= OPTIONAL_LEN then
		speak_2016[key] = true
	elseif htype ~= ERROR then
		speak_2016[key] = nil
	end
	is_2016 = speak_2016[key] or false
end

-- A name for a message in a frame. iWARP may have several in one.
local function id_of(tvb, pinfo)
	return string.format("%u/%s", pinfo.number, tvb:bytes(0, math.min(tvb:len(), 32)):tohex())
end

-- Adds the part of an RPC message to its sequence. Returns what is known of the part,
-- with the whole message and the number of its parts when it is complete.
local function assemble(tvb, pinfo, r)
	local id = id_of(tvb, pinfo)
	if parts[id] then
		return parts[id]
	end
	local last = r.htype == CALL_INLINE or r.htype == REPLY_INLINE
	local call = r.htype == CALL_MIDDLE or r.htype == CALL_INLINE
	local key = string.format("%s:%s:%s", direction(pinfo), tvb(0, 4):bytes():tohex(),
		call and "call" or "reply")
	local here = {}
	parts[id] = here

	local sequence = sequences[key]
	if not sequence then
		if last then
			return here
		end
		sequence = { data = ByteArray.new(), parts = {} }
		sequences[key] = sequence
	end
	local data = tvb:bytes(r.at)
	here.broken = sequence.remaining and data:len() + r.remaining ~= sequence.remaining
	sequence.broken = sequence.broken or here.broken
	sequence.remaining = r.remaining
	sequence.data:append(data)
	table.insert(sequence.parts, here)
	if last then
		for _, part in ipairs(sequence.parts) do
			part.complete_in = pinfo.number
		end
		here.whole = not sequence.broken and sequence.data
		here.count = #sequence.parts
		sequences[key] = nil
	end
	return here
end

-- Keeps octets of the memory of a host.
local function keep(pinfo, owner, handle, high, low, data)
	local key = string.format("%s:%u:%u", tostring(owner), handle, high)
	pieces[key] = pieces[key] or {}
	table.insert(pieces[key], { frame = pinfo.number, from = low, to = low + data:len(), data = data })
end

local function zeros(length)
	local out = ByteArray.new()
	out:set_size(length)
	return out
end

-- Adds to `out` what a segment of somebody's memory held: for a Call what was read from it
-- after that frame, for a Reply what was written to it before. Returns how many octets of
-- it were seen; in place of the others are zeros.
local function gather(out, pinfo, owner, read, call)
	local key = string.format("%s:%u:%u", tostring(owner), read.handle, read.high)
	local at, ends, seen = read.low, read.low + read.length, 0
	local near = {}
	for _, piece in ipairs(pieces[key] or {}) do
		if piece.to > at and piece.from < ends and (piece.frame > pinfo.number) == call then
			table.insert(near, piece)
		end
	end
	-- The nearest one counts.
	local function nearer(a, b)
		if call then
			return a.frame < b.frame
		end
		return a.frame > b.frame
	end
	while at < ends do
		local best
		for _, piece in ipairs(near) do
			if piece.from <= at and piece.to > at and (not best or nearer(piece, best)) then
				best = piece
			end
		end
		local till = best and math.min(best.to, ends) or ends
		for _, piece in ipairs(near) do
			if piece.from > at and piece.from < till and (not best or nearer(piece, best)) then
				till = piece.from
			end
		end
		if best then
			out:append(best.data:subset(at - best.from, till - at))
			seen = seen + till - at
		else
			out:append(zeros(till - at))
		end
		at = till
	end
	return seen
end

-- Completes an RPC message with the data that went by RDMA. What was not seen is replaced
-- by zeros: without them what is behind could not be found. A Read segment has a position
-- in the whole message. A Write chunk has none; it is that of the last result, as it is in
-- an NFS READ or READLINK. Returns the message, how many octets of such data there are,
-- and how many of these were seen; no message if there are too many; nothing if no data
-- went by RDMA, or have no place in the message.
local function fill(data, pinfo, r)
	local total, seen = 0, 0
	local written = {}
	if r.htype == REPLY_INLINE then
		written = r.writes
	elseif r.htype == REPLY_EXTERNAL then
		written = { r.reply }
	end
	for _, read in ipairs(r.call) do
		total = total + read.length
	end
	for _, read in ipairs(r.reads) do
		total = total + read.length
	end
	for _, chunk in ipairs(written) do
		for _, write in ipairs(chunk) do
			total = total + write.length
		end
	end
	if total == 0 then
		return nil
	elseif total > RDMA_MAX then
		return nil, total, 0
	end

	local function pad(out, begun)
		local odd = -(out:len() - begun) % 4
		if odd > 0 then
			out:append(zeros(odd))
		end
	end

	if r.htype == CALL_EXTERNAL then
		data = ByteArray.new()
		for _, read in ipairs(r.call) do
			seen = seen + gather(data, pinfo, pinfo.src, read, true)
		end
	end
	local out, taken = ByteArray.new(), 0
	for i, read in ipairs(r.reads) do
		local before = r.reads[i - 1]
		if not before or before.position ~= read.position then
			local more = read.position - out:len()
			if more < 0 or more > data:len() - taken then
				return nil
			end
			if more > 0 then
				out:append(data:subset(taken, more))
				taken = taken + more
			end
		end
		seen = seen + gather(out, pinfo, pinfo.src, read, true)
		local after = r.reads[i + 1]
		if not after or after.position ~= read.position then
			pad(out, read.position)
		end
	end
	if taken < data:len() then
		out:append(data:subset(taken, data:len() - taken))
	end
	for _, chunk in ipairs(written) do
		local begun = out:len()
		for _, write in ipairs(chunk) do
			seen = seen + gather(out, pinfo, pinfo.dst, write, false)
		end
		pad(out, begun)
	end
	return out, total, seen
end

local rpc = Dissector.get("rpc")

-- Whether RPC may see a message now. A Call that went by Call chunk is known only when all
-- frames have been looked at once. If RPC saw the Reply before, it would take it for one to
-- an unknown procedure for ever.
local function in_order(tvb, pinfo, r)
	local function key(from, to)
		return string.format("%s>%s:%s", tostring(from), tostring(to), tvb(0, 4):bytes():tohex())
	end
	if r.htype == CALL_EXTERNAL then
		external[key(pinfo.src, pinfo.dst)] = true
	elseif r.htype == REPLY_INLINE or r.htype == REPLY_EXTERNAL then
		return pinfo.visited or not external[key(pinfo.dst, pinfo.src)]
	end
	return true
end

-- Shows a message. In `again` is the frame in which it was before, if it was.
local function show(tvb, pinfo, tree, again)
	pinfo.cols.protocol = "RPCoRDMA2"
	note_dialect(tvb, pinfo)
	local ends = header(tvb, nil).at
	local item = tree:add(rpcrdma2, tvb(0, ends))
	local r = header(tvb, item)
	item:append_text(": " .. r.line)
	pinfo.cols.info = r.line .. (again and " [sent again]" or "")
	if again then
		item:add(f.again, again):set_generated()
		return
	end

	local data = ByteArray.new()
	if ends < tvb:len() then
		local part = assemble(tvb, pinfo, r)
		if part.broken then
			item:add_proto_expert_info(cut_short)
		end
		if part.complete_in and part.complete_in ~= pinfo.number then
			item:add(f.part_of, part.complete_in):set_generated()
		end
		if r.htype == CALL_MIDDLE or r.htype == REPLY_MIDDLE then
			item:add(f.part, tvb(ends))
			return
		end
		if part.count then
			item:add(f.part, tvb(ends))
			item:add(f.parts, part.count):set_generated()
			if not part.whole then
				return
			end
		end
		data = part.whole or tvb:bytes(ends)
	end
	local message
	local filled, total, seen = fill(data, pinfo, r)
	if total then
		if seen > 0 then
			item:add(f.by_rdma, seen):set_generated()
		end
		if seen < total then
			item:add(f.absent, total - seen):set_generated()
		end
		-- Of a message that went by RDMA as a whole there may be nothing.
		if filled and (ends < tvb:len() or seen == total) then
			message = filled:tvb("RPC message")
		end
	elseif ends < tvb:len() then
		message = data:len() > tvb:len() - ends and data:tvb("RPC message") or tvb(ends):tvb()
	end
	-- It writes into the columns what it found.
	if rpc and in_order(tvb, pinfo, r) and message then
		rpc:call(message, pinfo, tree)
	end
end

-- Packet sequence numbers have 24 bits.
local PSNS = 0x1000000

-- Adds a packet to the message of which it is `first`, `last` or neither; `key` names
-- the direction of the connection that it came over, and `place` the packet: the next
-- one of the message has the place `after`. Returns what is known of the packet, or
-- nothing if it does not belong to a message.
local function join(tvb, pinfo, key, first, last, place, after)
	local id = string.format("%s/%s/%u", id_of(tvb, pinfo), key, place)
	if packets[id] then
		return packets[id]
	end
	if first then
		messages[key] = begins(tvb) and { data = ByteArray.new(), packets = {}, place = place } or nil
	end
	local message = messages[key]
	if not message or message.place ~= place then
		return nil
	end
	local here = {}
	packets[id] = here
	message.data:append(tvb:bytes())
	message.place = after
	table.insert(message.packets, here)
	if last then
		for _, packet in ipairs(message.packets) do
			packet.message_in = pinfo.number
		end
		here.whole = message.data
		messages[key] = nil
	end
	return here
end

-- Shows a packet that is not a whole message, and the message if it is complete.
local function show_packet(tvb, pinfo, tree, here)
	if here.whole then
		local whole = here.whole:tvb("RPC-over-RDMA message")
		if sensible(whole) then
			show(whole, pinfo, tree)
			return
		end
	end
	pinfo.cols.protocol = "RPCoRDMA2"
	local item = tree:add(rpcrdma2, tvb())
	item:append_text(": packet of a message")
	item:add(f.packet, tvb())
	if here.message_in then
		item:add(f.packet_of, here.message_in):set_generated()
	end
end

function rpcrdma2.dissector(tvb, pinfo, tree)
	if not sensible(tvb) then
		return 0
	end
	show(tvb, pinfo, tree)
	return tvb:len()
end

-- The last value of a field in the frame so far, which is that of the packet in hand.
local function latest(field)
	local all = { field() }
	return all[#all] and tonumber(tostring(all[#all].value))
end

-- Opcodes of a reliable connection, InfiniBand Architecture volume 1, 9.2.1.
local SEND_FIRST, SEND_MIDDLE = 0, 1
local SEND_LAST = { [2] = true, [3] = true, [22] = true }
local SEND_ONLY = { [4] = true, [5] = true, [23] = true }
local bth_opcode = Field.new("infiniband.bth.opcode")
local bth_psn = Field.new("infiniband.bth.psn")
local bth_qp = Field.new("infiniband.bth.destqp")
local READ_REQUEST = 12
local WRITE_BEGIN = { [6] = true, [10] = true, [11] = true }
local READ_BEGIN = { [13] = true, [16] = true }
local RDMA_GO_ON = { [7] = true, [8] = true, [9] = true, [14] = true, [15] = true }
local reth_offset = Field.new("infiniband.reth.va")
local reth_handle = Field.new("infiniband.reth.r_key")
local reth_length = Field.new("infiniband.reth.dmalen")

-- Keeps what goes by RDMA. Only what is seen for the first time is new.
local function rdma_over_infiniband(tvb, pinfo, key, opcode, psn)
	local function request(owner)
		local offset = reth_offset()
		return offset and { owner = owner, handle = latest(reth_handle), psn = psn,
			high = offset.value:higher(), low = offset.value:lower(), left = latest(reth_length) }
	end

	if opcode == READ_REQUEST then
		requests[string.format("%s:%u", tostring(pinfo.dst), psn)] = request(pinfo.dst)
		return
	elseif WRITE_BEGIN[opcode] then
		transfers[key] = request(pinfo.dst)
	elseif READ_BEGIN[opcode] then
		transfers[key] = requests[string.format("%s:%u", tostring(pinfo.src), psn)]
	elseif not RDMA_GO_ON[opcode] then
		return
	end
	local transfer = transfers[key]
	if not transfer or transfer.psn ~= psn then
		return
	end
	local length = math.min(tvb:len(), transfer.left)
	if length > 0 then
		keep(pinfo, transfer.owner, transfer.handle, transfer.high, transfer.low,
			tvb:bytes(0, length))
	end
	transfer.low, transfer.left = transfer.low + length, transfer.left - length
	transfer.psn = (psn + 1) % PSNS
end

local function over_infiniband(tvb, pinfo, tree)
	local opcode, psn, qp = latest(bth_opcode), latest(bth_psn), latest(bth_qp)
	if not (opcode and psn and qp) then
		return false
	end
	local key = string.format("%s:%u", direction(pinfo), qp)
	if SEND_ONLY[opcode] then
		if not sensible(tvb) then
			return false
		end
		local packet = string.format("%s:%u:%s", key, psn,
			tvb:bytes(0, math.min(tvb:len(), 32)):tohex())
		first_in[packet] = first_in[packet] or pinfo.number
		local again = first_in[packet]
		show(tvb, pinfo, tree, again ~= pinfo.number and again or nil)
		return true
	end
	if opcode ~= SEND_FIRST and opcode ~= SEND_MIDDLE and not SEND_LAST[opcode] then
		if rpcrdma2.prefs.keep and not pinfo.visited then
			rdma_over_infiniband(tvb, pinfo, key, opcode, psn)
		end
		return false
	end
	local here = join(tvb, pinfo, key, opcode == SEND_FIRST, SEND_LAST[opcode], psn,
		(psn + 1) % PSNS)
	if here then
		show_packet(tvb, pinfo, tree, here)
	end
	return here ~= nil
end

-- Opcodes of RFC 5040, section 4.1.
local RDMAP_WRITE, RDMAP_REQUEST, RDMAP_RESPONSE = 0, 1, 2
local RDMAP_SENDS = { [3] = true, [4] = true, [5] = true, [6] = true }
local rdmap_opcode = Field.new("iwarp_rdma.opcode")
local ddp_last, ddp_msn, ddp_mo =
	Field.new("iwarp_ddp.last_flag"), Field.new("iwarp_ddp.msn"), Field.new("iwarp_ddp.mo")
local ddp_handle = Field.new("iwarp_ddp.stag")
local ddp_offset = Field.new("iwarp_ddp.tagged_offset")
local sink_handle, sink_offset = Field.new("iwarp_rdma.sinkstag"), Field.new("iwarp_rdma.sinkto")
local source_handle, source_offset = Field.new("iwarp_rdma.srcstag"), Field.new("iwarp_rdma.srcto")
local source_length = Field.new("iwarp_rdma.rdmardsz")

-- The high and the low word of the last offset in the frame so far.
local function latest_offset(field)
	local all = { field() }
	local value = all[#all] and all[#all].value
	if value then
		return value:higher(), value:lower()
	end
end

-- Keeps what goes by RDMA. Each segment says where it belongs; those of a Read Response say
-- where the data go, and the Request where they are from.
local function rdma_over_iwarp(tvb, pinfo, opcode)
	if opcode == RDMAP_REQUEST then
		local read = { handle = latest(source_handle), length = latest(source_length) }
		read.high, read.low = latest_offset(source_offset)
		local sink_high
		sink_high, read.sink = latest_offset(sink_offset)
		if not (read.handle and read.length and read.low and read.sink) then
			return
		end
		local key = string.format("%s:%u:%u", tostring(pinfo.src), latest(sink_handle) or 0, sink_high)
		requests[key] = requests[key] or {}
		table.insert(requests[key], 1, read)
		return
	end
	local handle, high, low = latest(ddp_handle), latest_offset(ddp_offset)
	if not (handle and low) or tvb:len() == 0 then
		return
	end
	if opcode == RDMAP_WRITE then
		keep(pinfo, pinfo.dst, handle, high, low, tvb:bytes())
	elseif opcode == RDMAP_RESPONSE then
		local key = string.format("%s:%u:%u", tostring(pinfo.dst), handle, high)
		for _, read in ipairs(requests[key] or {}) do
			local beyond = low - read.sink
			if beyond >= 0 and beyond < read.length then
				keep(pinfo, pinfo.src, read.handle, read.high, read.low + beyond, tvb:bytes())
				return
			end
		end
	end
end

-- Wireshark itself shows only the first of several Sends in one TCP segment when it puts
-- their segments together: it takes the others for that one once more.
pcall(set_preference, "iwarp_ddp_rdmap.reassemble_iwarp_rdma_send", false)

local function over_iwarp(tvb, pinfo, tree)
	local opcode = latest(rdmap_opcode)
	if opcode and not RDMAP_SENDS[opcode] and rpcrdma2.prefs.keep and not pinfo.visited then
		rdma_over_iwarp(tvb, pinfo, opcode)
	end
	if not RDMAP_SENDS[opcode] then
		return false
	end
	local flags, msn, mo = { ddp_last() }, latest(ddp_msn), latest(ddp_mo)
	local last = #flags > 0 and flags[#flags].value
	if msn and mo and not (mo == 0 and last) then
		local key = string.format("%s:%u", direction(pinfo), msn)
		local here = join(tvb, pinfo, key, mo == 0, last, mo, mo + tvb:len())
		if here then
			show_packet(tvb, pinfo, tree, here)
			return true
		end
	end
	-- This is the whole, also if it is Wireshark that has put it together.
	if not sensible(tvb) then
		return false
	end
	show(tvb, pinfo, tree)
	return true
end

rpcrdma2:register_heuristic("infiniband.payload", over_infiniband)
rpcrdma2:register_heuristic("iwarp_ddp_rdmap", over_iwarp)
