-- SPDX-License-Identifier: GPL-2.0
--
-- RPC-over-RDMA Version Two (draft-ietf-nfsv4-rpcrdma-version-two-07) for Wireshark
-- and tshark, over RoCEv2, InfiniBand and iWARP:
--
--   tshark -X lua_script:tools/wireshark/rpcrdma2.lua -r FILE
--
-- Version One is Wireshark's own business: it knows that as "rpcordma". What is
-- recognised here is a message whose second word is 2 and whose header makes sense
-- to its end.

local rpcrdma2 = Proto("rpcrdma2", "RPC-over-RDMA Version Two")

local VERSION = 2
local PREFIX_LEN = 16

local ERROR, GRANT, CONNPROP_MIDDLE, CONNPROP_FINAL = 4, 5, 6, 7
local CALL_EXTERNAL, CALL_MIDDLE, CALL_INLINE = 8, 9, 10
local REPLY_EXTERNAL, REPLY_MIDDLE, REPLY_INLINE = 11, 12, 13

local htypes = {
	[ERROR] = "RDMA2_ERROR",
	[GRANT] = "RDMA2_GRANT",
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

local cut_short = ProtoExpert.new("rpcrdma2.sequence.broken", "Parts do not add up",
	expert.group.SEQUENCE, expert.severity.WARN)
rpcrdma2.experts = { cut_short }

-- Raised by `reader` when the header goes beyond the message.
local SHORT = {}

-- Reads XDR from a buffer and, unless `tree` is nil, shows what it reads.
local function reader(tvb, at)
	local r = { at = at }

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

local function segment(r, tvb, tree, position)
	subtree(r, tvb, tree, f.segment, "Segment: ", function(sub)
		local at = position and r.show(sub, f.position)
		local handle = r.show(sub, f.handle)
		local length = r.show(sub, f.length)
		if r.at + 8 > tvb:len() then
			error(SHORT)
		end
		local offset = tvb(r.at, 8)
		if sub then
			sub:add(f.offset, offset)
		end
		r.at = r.at + 8
		return string.format("%u octets at 0x%08x:0x%s%s", length, handle,
			tostring(offset:bytes()), at and string.format(", position %u", at) or "")
	end)
end

local function read_list(r, tvb, tree, field, name)
	subtree(r, tvb, tree, field, name, function(sub)
		local count = 0
		while r.follows() do
			segment(r, tvb, sub, true)
			count = count + 1
		end
		return string.format(": %u segments", count)
	end)
end

local function write_chunk(r, tvb, tree, field, name)
	subtree(r, tvb, tree, field, name, function(sub)
		local count = r.word():uint()
		-- Before the loop: a count from the wire must not keep us busy.
		if count > (tvb:len() - r.at) / 16 then
			error(SHORT)
		end
		for _ = 1, count do
			segment(r, tvb, sub, false)
		end
		return string.format(": %u segments", count)
	end)
end

local function write_list(r, tvb, tree, name)
	subtree(r, tvb, tree, f.writes, name, function(sub)
		local count = 0
		while r.follows() do
			write_chunk(r, tvb, sub, f.chunk, "Write chunk")
			count = count + 1
		end
		return string.format(": %u chunks", count)
	end)
end

local function reply_chunk(r, tvb, tree, name)
	if r.follows() then
		write_chunk(r, tvb, tree, f.reply, name)
	end
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
	local code = r.show(tree, f.err)
	if code == ERR_VERS then
		r.show(tree, f.low)
		r.show(tree, f.high)
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

-- Reads a whole header. Returns where it ends, how many octets of the RPC message
-- remain, and what is to be said of it in one line.
local function header(tvb, tree)
	local r = reader(tvb, 0)
	local xid = r.show(tree, f.xid)
	r.show(tree, f.vers)
	local credit = r.show(tree, f.credit)
	local htype = r.show(tree, f.htype)
	local remaining, more = 0, ""

	if htype == ERROR then
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
	local line = string.format("%s xid 0x%08x credits %u%s", htypes[htype], xid, credit, more)
	return r.at, htype, remaining, line
end

-- Whether the header makes sense to its end.
local function sensible(tvb)
	if tvb:len() < PREFIX_LEN or tvb(4, 4):uint() ~= VERSION or not htypes[tvb(12, 4):uint()] then
		return false
	end
	local ok, ends, htype = pcall(header, tvb, nil)
	if not ok then
		if ends == SHORT then
			return false
		end
		error(ends, 0)
	end
	-- RPC messages are behind these only.
	local carries = htype == CALL_MIDDLE or htype == REPLY_MIDDLE or htype == CALL_INLINE
		or htype == REPLY_INLINE
	return carries == (ends < tvb:len())
end

-- Continuation sequences that are under way, and what is known of frames:
-- sequences[key] = { data, frames, remaining }, known[frame .. tvb offset] = result.
local sequences, known = {}, {}

function rpcrdma2.init()
	sequences, known = {}, {}
end

-- Adds the part of a message to its sequence. Returns the whole RPC message with the
-- number of its parts when it is complete.
local function assemble(tvb, pinfo, ends, htype, remaining)
	local id = string.format("%u/%u", pinfo.number, tvb:offset())
	if known[id] then
		return known[id]
	end
	local calls = htype == CALL_MIDDLE or htype == CALL_INLINE
	local key = string.format("%s>%s:%s:%s", tostring(pinfo.src), tostring(pinfo.dst),
		tostring(tvb(0, 4):uint()), calls and "call" or "reply")
	local here = { frame = pinfo.number }
	known[id] = here

	local data = tvb:bytes(ends)
	local sequence = sequences[key]
	if not sequence then
		if htype == CALL_INLINE or htype == REPLY_INLINE then
			return here
		end
		sequence = { data = ByteArray.new(), frames = {} }
		sequences[key] = sequence
	end
	here.broken = sequence.remaining and data:len() + remaining ~= sequence.remaining
	sequence.remaining = remaining
	sequence.data:append(data)
	table.insert(sequence.frames, here)
	if htype == CALL_INLINE or htype == REPLY_INLINE then
		for _, part in ipairs(sequence.frames) do
			part.complete_in = pinfo.number
		end
		here.whole = sequence.data
		here.parts = #sequence.frames
		sequences[key] = nil
	end
	return here
end

local rpc = Dissector.get("rpc")

function rpcrdma2.dissector(tvb, pinfo, tree)
	if not sensible(tvb) then
		return 0
	end
	pinfo.cols.protocol = "RPCoRDMA2"
	local ends = select(1, header(tvb, nil))
	local item = tree:add(rpcrdma2, tvb(0, ends))
	local _, htype, remaining, line = header(tvb, item)
	item:append_text(": " .. line)
	pinfo.cols.info = line
	if ends == tvb:len() then
		return ends
	end

	local part = assemble(tvb, pinfo, ends, htype, remaining)
	if part.broken then
		item:add_proto_expert_info(cut_short)
	end
	if part.complete_in and part.complete_in ~= pinfo.number then
		item:add(f.part_of, part.complete_in):set_generated()
	end
	if htype == CALL_MIDDLE or htype == REPLY_MIDDLE then
		item:add(f.part, tvb(ends))
		return tvb:len()
	end
	local message = tvb(ends):tvb()
	if part.whole then
		item:add(f.part, tvb(ends))
		item:add(f.parts, part.parts):set_generated()
		message = part.whole:tvb("RPC message")
	end
	-- It writes into the columns what it found.
	if rpc then
		rpc:call(message, pinfo, tree)
	end
	return tvb:len()
end

local function heuristic(tvb, pinfo, tree)
	if not sensible(tvb) then
		return false
	end
	rpcrdma2.dissector(tvb, pinfo, tree)
	return true
end

rpcrdma2:register_heuristic("infiniband.payload", heuristic)
rpcrdma2:register_heuristic("iwarp_ddp_rdmap", heuristic)
