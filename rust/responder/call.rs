// SPDX-License-Identifier: GPL-2.0

//! Taking a Call in.

mod refusal;

pub(crate) use self::refusal::{
    answer,
    error,
    xid_of,
    Refusal, //
};

use crate::endpoint::{
    pull,
    Endpoint,
    EndpointEvents,
    Pull,
    Received,
    SendBuffer,
    Transfers, //
};
use crate::kext::prelude::*;
use crate::link::assembly::Whole;
use crate::observe::trace::RefusalReason;
use crate::proto::chunk::{
    Limits,
    Segment, //
};
use crate::proto::message::plan::{
    walk,
    Layout,
    Plan,
    Source, //
};
use crate::proto::message::{
    self,
    ChunkKind,
    Header,
    Lists,
    OnlyChunk,
    Short,
    Version, //
};
use crate::rdma::dma::Direction;
use crate::responder::stats::{
    InWork,
    Stats, //
};
use crate::sunrpc::svc::{
    CallContext,
    CallRqst,
    FreshPages,
    ServerTransport, //
};

/// Results of one Call that may go into Write chunks, as many as there may be chunks.
const MAX_RESULTS: usize = 16;

/// The octets that the rest of a page is filled with.
static ZEROES: [u8; PAGE_SIZE] = [0; PAGE_SIZE];

/// A Call.
pub(crate) struct Call<H: EndpointEvents> {
    /// Header and inline part, until the Reply is ready.
    message: Option<Received<H>>,
    /// The RPC message, if it came in parts. Of that the message above is the last.
    whole: Option<Whole>,
    /// The size of the header.
    header_len: usize,
    /// The chunks of the Call. Most have none.
    chunks: Option<CallChunks>,
    /// Its results that go into chunks, as offset and length in the Reply, in order.
    results: [(u32, u32); MAX_RESULTS],
    /// The number of results.
    result_count: usize,
    /// Where the Reply goes, if it was there before the Call was taken in.
    buffer: Option<SendBuffer<H>>,
    /// Its transaction ID.
    xid: u32,
    /// The version of its header.
    version: Version,
    /// Where it is counted.
    work: InWork,
}

/// The chunks of a Call.
enum CallChunks {
    /// One, which has one segment.
    Only(OnlyChunk),
    /// Any.
    Any(AnyChunks),
}

/// Any chunks of a Call.
struct AnyChunks {
    /// Set if the RPC message is in a chunk.
    external: bool,
    /// Where its lists are in the message.
    lists: Lists,
    /// Which of the Write chunks are empty, one bit each: their results are wanted inline, RFC 8166
    /// section 4.3.2.3.
    empty: u32,
    /// The number of Write chunks that may have results.
    chunk_count: usize,
    /// Set if some are offered for the Reply.
    offered: bool,
    /// The handle that the Reply may invalidate.
    invalidate: Option<u32>,
}

const _: () = assert!(MAX_RESULTS <= u32::BITS as usize);

impl AnyChunks {
    /// The chunks of a Call; [`None`] if it has none.
    fn of(call: &Header<'_>) -> Option<Self> {
        if !call.has_chunks() {
            return None;
        }
        let (mut empty, mut chunk_count) = (0, 0);
        for chunk in call.write_list().iter().take(MAX_RESULTS) {
            empty |= u32::from(chunk.is_empty()) << chunk_count;
            chunk_count += 1;
        }
        Some(Self {
            external: call.is_external(),
            lists: call.lists,
            empty,
            chunk_count,
            offered: call.offers_chunks(),
            invalidate: call.invalidate(),
        })
    }
}

impl CallChunks {
    /// Returns whether the Write chunk with this number is empty; [`None`] if there is none.
    fn is_empty(&self, index: usize) -> Option<bool> {
        match self {
            Self::Only(only) => {
                let is_there = only.kind == ChunkKind::Write && index == 0;
                is_there.then_some(false)
            }
            Self::Any(any) => (index < any.chunk_count).then_some(any.empty >> index & 1 != 0),
        }
    }
}

/// Where Calls are taken in: a thread of a service on a server, the service for reverse-direction
/// Calls on a client.
pub(crate) trait CallSink {
    /// Set if a Call may be delivered with a data item in pages of its own, between two parts of
    /// the inline message. Else all of what is not inline as a whole is put together in pages.
    const SPLITS: bool;

    /// Returns whether a Call that came in parts, which are `len` octets together, can be
    /// delivered.
    fn holds(&self, len: usize) -> bool;

    /// Takes pages for `len` octets of a Call that will be read, behind which `tail` octets of its
    /// message follow. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; else there are not as many, since the Call is too long.
    fn take_pages(&mut self, len: usize, tail: usize) -> Result<FreshPages>;
}

impl<T: ServerTransport> CallSink for CallRqst<'_, T> {
    const SPLITS: bool = true;

    fn holds(&self, len: usize) -> bool {
        CallRqst::holds(self, len)
    }

    fn take_pages(&mut self, len: usize, tail: usize) -> Result<FreshPages> {
        CallRqst::take_pages(self, len.div_ceil(PAGE_SIZE), tail)
    }
}

/// A message to take in.
pub(crate) struct Arrived<H: EndpointEvents> {
    /// The message.
    pub(crate) message: Received<H>,
    /// The RPC message, if it came in parts. Of that the message is the last.
    pub(crate) whole: Option<Whole>,
    /// Set if an earlier attempt to take it in was [`Taken::Crowded`].
    pub(crate) again: bool,
}

/// The properties of a Call that its header tells.
struct Heading {
    /// Its version.
    version: Version,
    /// Its transaction ID.
    xid: u32,
    /// The size of the header.
    header_len: usize,
    /// Its chunks.
    chunks: Option<CallChunks>,
}

/// A Call, and how it is put together.
type Decoded<H> = (KBox<Call<H>>, Option<Plan>);

impl<H: EndpointEvents> Call<H> {
    /// A Call in a message, and how it is put together; [`None`] if its Read list can't be
    /// followed. `short` is what [`short`] has said of it. `splits` is that of the [`CallSink`].
    fn decode(
        version: Version,
        arrived: Arrived<H>,
        short: Option<Short>,
        stats: &Arc<Stats>,
        splits: bool,
    ) -> Result<Decoded<H>, (Option<Received<H>>, Refusal)> {
        let short = short.filter(|_| splits).and_then(|short| {
            let plan = Plan::of_short(&short, arrived.message.bytes())?;
            Some((short, plan))
        });
        if let Some((short, plan)) = short {
            return match Self::of_short(short, arrived, None, stats) {
                Ok(call) => Ok((call, Some(plan))),
                Err(error) => Err((None, Refusal::Lost(error))),
            };
        }
        let Arrived { message, whole, .. } = &arrived;
        let decoded = decode(version, message.bytes()).map(|mut call| {
            if let Some(whole) = whole {
                call.payload = whole.bytes();
            }
            if !arrived.again {
                stats.call(&call, message.bytes().len());
            }
            // What was put together is no place for the head and the tail of a Call.
            let splits = splits && whole.is_none();
            // Of a Call in parts, the last message has the header.
            let chunks = AnyChunks::of(&call);
            let heading = Heading {
                version,
                xid: call.xid,
                header_len: call.header_len,
                chunks: chunks.map(CallChunks::Any),
            };
            (heading, Plan::new(&call, splits))
        });
        match decoded {
            Ok((heading, plan)) => {
                let call = Self::new(arrived, heading, None, stats);
                match KBox::init(call, GFP_KERNEL) {
                    Ok(call) => Ok((call, plan)),
                    Err(error) => Err((None, Refusal::Lost(error))),
                }
            }
            Err(refusal) => Err((Some(arrived.message), refusal)),
        }
    }

    /// A Call that [`short`] has found to be so, perhaps with a buffer for its Reply.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    #[inline]
    pub(crate) fn of_short(
        short: Short,
        arrived: Arrived<H>,
        buffer: Option<SendBuffer<H>>,
        stats: &Arc<Stats>,
    ) -> Result<KBox<Self>> {
        if !arrived.again {
            stats.short_call(&short, arrived.message.bytes().len());
        }
        let heading = Heading {
            version: short.version,
            xid: short.xid,
            header_len: short.header_len,
            chunks: short.chunk.map(CallChunks::Only),
        };
        let call = Self::new(arrived, heading, buffer, stats);
        KBox::init(call, GFP_KERNEL)
    }

    /// A Call, to be made in its place.
    #[inline]
    fn new<'a>(
        arrived: Arrived<H>,
        heading: Heading,
        buffer: Option<SendBuffer<H>>,
        stats: &'a Arc<Stats>,
    ) -> impl Init<Self> + 'a
    where
        H: 'a,
    {
        let Arrived { message, whole, .. } = arrived;
        let Heading {
            version,
            xid,
            header_len,
            chunks,
        } = heading;
        init!(Self {
            message: Some(message),
            whole,
            header_len,
            chunks,
            results: [(0, 0); MAX_RESULTS],
            result_count: 0,
            buffer,
            xid,
            version,
            work: InWork::new(stats),
        })
    }

    /// Returns whether it offers chunks for its Reply.
    pub(crate) fn offers_chunks(&self) -> bool {
        match &self.chunks {
            None => false,
            Some(CallChunks::Only(only)) => !only.kind.is_read(),
            Some(CallChunks::Any(any)) => any.offered,
        }
    }

    /// Returns its chunk, if that has one segment, and there is no other.
    pub(super) fn only_chunk(&self) -> Option<OnlyChunk> {
        match &self.chunks {
            Some(CallChunks::Only(only)) => Some(*only),
            Some(CallChunks::Any(_)) | None => None,
        }
    }

    /// Returns the handle that the Reply may invalidate.
    pub(super) fn invalidate(&self) -> Option<u32> {
        match self.chunks.as_ref()? {
            CallChunks::Only(only) => Some(only.segment.handle),
            CallChunks::Any(any) => any.invalidate,
        }
    }

    /// Returns the header, until the Reply is ready.
    #[inline]
    pub(crate) fn header(&self) -> Option<Header<'_>> {
        let bytes = self.message.as_ref()?.bytes();
        let mut call = match &self.chunks {
            Some(CallChunks::Any(any)) => {
                let head = (self.version, self.xid, self.header_len);
                Header::of_call(head, any.external, &any.lists, bytes)
            }
            None | Some(CallChunks::Only(_)) => {
                let head = (self.version, self.xid, self.header_len);
                Short::of_call(head, self.only_chunk()).header(bytes)
            }
        };
        if let Some(whole) = &self.whole {
            call.payload = whole.bytes();
        }
        Some(call)
    }

    /// Its transaction ID.
    pub(crate) fn xid(&self) -> u32 {
        self.xid
    }

    /// Where it is counted.
    pub(super) fn stats(&self) -> &Arc<Stats> {
        self.work.stats()
    }

    /// Where the message arrived; [`None`] after [`Self::release_message`].
    pub(crate) fn endpoint(&self) -> Option<&Arc<Endpoint<H>>> {
        Some(self.message.as_ref()?.endpoint())
    }

    /// Gives the Receive buffer back. The Reply, which is ready, lets the peer send the next Call,
    /// for which it may be needed. Nobody looks at the Call's own message any more.
    pub(crate) fn release_message(&mut self) {
        self.message = None;
        self.whole = None;
    }

    /// Takes out the buffer for the Reply, once.
    pub(crate) fn take_buffer(&mut self) -> Option<SendBuffer<H>> {
        self.buffer.take()
    }

    /// The results that have a chunk, as offset and length in the Reply; of length zero if it is an
    /// empty one.
    pub(crate) fn results(&self) -> &[(u32, u32)] {
        self.results.get(..self.result_count).unwrap_or(&[])
    }
}

impl<H: EndpointEvents> CallContext for Call<H> {
    fn message(&self) -> &[u8] {
        if let Some(whole) = &self.whole {
            return whole.bytes();
        }
        let bytes = self
            .message
            .as_ref()
            .map_or(&[][..], |message| message.bytes());
        bytes.get(self.header_len..).unwrap_or(&[])
    }

    fn is_scattered(&self) -> bool {
        self.whole.is_some()
    }

    fn result_payload(&mut self, offset: u32, len: u32) {
        let chunk = |chunks: &CallChunks| chunks.is_empty(self.result_count);
        // RFC 8166 section 4.3.2: results go into the Write chunks in order, also one of no
        // octets (RFC 8267 section 6.4.1). Whether one fits is seen when the Reply is made.
        if let (Some(is_empty), Some(place)) = (
            self.chunks.as_ref().and_then(chunk),
            self.results.get_mut(self.result_count),
        ) {
            *place = (offset, if is_empty { 0 } else { len });
            self.result_count += 1;
        }
    }

    fn is_unanswered(&self) -> bool {
        self.buffer.is_some()
    }
}

/// Decodes a Call.
///
/// # Errors
///
/// Why it is none. Where messages are counted the session has decoded it before, so there is no
/// reason to be told.
fn decode(version: Version, bytes: &[u8]) -> Result<Header<'_>, Refusal> {
    let is_two = version.rules().counts_messages;
    let header = message::decode(version, bytes, &Limits::DEFAULT).map_err(|error| {
        if is_two {
            Refusal::Drop
        } else {
            Refusal::Header(error)
        }
    })?;
    header.is_call().then_some(header).ok_or(Refusal::Drop)
}

/// A Call whose chunks are being read.
pub(crate) struct Pulling<H: EndpointEvents> {
    /// The Call.
    call: KBox<Call<H>>,
    /// Where the chunks go.
    pages: FreshPages,
    /// The octets that are there when all is read.
    len: usize,
    /// The layout in which it is delivered.
    layout: Layout,
}

impl<H: EndpointEvents> Pulling<H> {
    /// The Call's transaction ID.
    pub(crate) fn xid(&self) -> u32 {
        self.call.xid()
    }

    /// Returns whether the Call, if all of it was in chunks, is the one that the header speaks of.
    /// Else it is as good as not decoded, RFC 8166 section 4.5.2.
    pub(crate) fn is_sound(&self) -> bool {
        // Then a part of it is in the message.
        if let Layout::Split { .. } = self.layout {
            return true;
        }
        let Some(header) = self.call.header() else {
            return false;
        };
        // What is in the message itself was looked at before.
        !header.is_external() || (self.len >= 4 && self.pages.first_word() == Some(header.xid))
    }

    /// Gives up; returns the message, and the buffer for an answer.
    pub(crate) fn give_up(self) -> (Option<Received<H>>, Option<SendBuffer<H>>) {
        let mut call = KBox::into_inner(self.call);
        let buffer = call.take_buffer();
        (call.message, buffer)
    }

    /// Returns the Call, all of which has been read, with the pages that it is in and its length.
    /// [`None`] if it was prepared for a [`CallSink`] that splits, and is split.
    pub(crate) fn into_pages(self) -> Option<(KBox<Call<H>>, FreshPages, usize)> {
        match self.layout {
            Layout::Split { .. } => None,
            Layout::Whole => Some((self.call, self.pages, self.len)),
        }
    }

    /// Delivers the Call, all of which has been read. Returns its length.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it does not fit the thread's pages.
    pub(crate) fn deliver<T: ServerTransport<Context = Call<H>>>(
        self,
        rqst: CallRqst<'_, T>,
    ) -> Result<usize> {
        let Self {
            call,
            pages,
            len,
            layout,
        } = self;
        match layout {
            Layout::Split { position } => rqst.deliver_split(call, position, pages, len),
            Layout::Whole => rqst.deliver_pages(call, pages, len),
        }
    }
}

/// The outcome of taking a message in.
pub(crate) enum Taken<H: EndpointEvents, S: CallSink> {
    /// All of it is there: to be delivered.
    Ready(KBox<Call<H>>, S),
    /// Its Reads must be posted.
    Pull(KBox<Pull<H>>),
    /// It is refused.
    Refused(Option<Received<H>>, Refusal),
    /// There are too few memory regions for its Reads. Nothing has become of it; if others have
    /// some, it may be taken in when they have given them back.
    Crowded(Arrived<H>),
}

/// Returns whether a message is a Call without chunks. The last part of one that came in parts
/// tells of all of it: only this has chunks.
pub(crate) fn is_plain<H: EndpointEvents>(version: Version, arrived: &Arrived<H>) -> bool {
    let short = Short::decode_call(version, arrived.message.bytes());
    short.is_some_and(|short| short.chunk.is_none())
}

/// Decodes a message if it is a Call with one chunk of one segment at most: nearly all are such. If
/// there is nothing to read, [`Call::of_short`] takes it in. Nothing is said about any other
/// message.
#[inline]
pub(crate) fn short<H: EndpointEvents>(version: Version, arrived: &Arrived<H>) -> Option<Short> {
    match arrived.whole {
        None => Short::decode_call(version, arrived.message.bytes()),
        Some(_) => None,
    }
}

/// Takes any message in, of which [`short`] has said `short`, and prepares the Reads that it asks
/// for. Sleeps, but does not wait for the peer. If it is taken, the Call takes `buffer` for its
/// Reply, if there is one.
pub(crate) fn take<H, S>(
    version: Version,
    arrived: Arrived<H>,
    short: Option<Short>,
    buffer: &mut Option<SendBuffer<H>>,
    mut sink: S,
    stats: &Arc<Stats>,
) -> Taken<H, S>
where
    H: EndpointEvents<Pull = Pulling<H>>,
    S: CallSink,
{
    let again = arrived.again;
    let (mut call, plan) = match Call::decode(version, arrived, short, stats, S::SPLITS) {
        Ok(decoded) => decoded,
        Err((message, refusal)) => return Taken::Refused(message, refusal),
    };
    let Some(plan) = plan else {
        return Taken::Refused(message_of(call), Refusal::Chunks(RefusalReason::ReadList));
    };
    if !plan.reads {
        if call.is_scattered() && !sink.holds(call.message().len()) {
            return Taken::Refused(
                message_of(call),
                Refusal::Chunks(RefusalReason::CallTooLong),
            );
        }
        call.buffer = buffer.take();
        return Taken::Ready(call, sink);
    }
    let mut pages = match sink.take_pages(plan.len, plan.tail) {
        Ok(pages) => pages,
        Err(ENOMEM) => return Taken::Refused(None, Refusal::Lost(ENOMEM)),
        Err(_) => {
            return Taken::Refused(
                message_of(call),
                Refusal::Chunks(RefusalReason::CallTooLong),
            )
        }
    };
    match prepare(&call, &plan, &mut pages) {
        Err(EAGAIN) => {
            if !again {
                stats.out_of_regions(call.xid());
            }
            match call_message(call) {
                Some((message, whole)) => Taken::Crowded(Arrived {
                    message,
                    whole,
                    again: true,
                }),
                // It is there until the Reply is ready.
                None => Taken::Refused(None, Refusal::Lost(ENOTCONN)),
            }
        }
        Ok(transfers) => {
            let fits = call
                .endpoint()
                .is_some_and(|endpoint| endpoint.fits(&transfers));
            if !fits {
                let max = call
                    .endpoint()
                    .map_or(0, |endpoint| endpoint.sizes().segments);
                return Taken::Refused(message_of(call), Refusal::Segments { max });
            }
            call.buffer = buffer.take();
            let pulling = Pulling {
                call,
                pages,
                len: plan.len,
                layout: plan.layout,
            };
            match pull(transfers, pulling) {
                Ok(pull) => Taken::Pull(pull),
                Err(_) => Taken::Refused(None, Refusal::Lost(ENOMEM)),
            }
        }
        Err(error) => Taken::Refused(None, Refusal::Lost(error)),
    }
}

/// Takes a Call's message out, and the RPC message if it came in parts.
fn call_message<H: EndpointEvents>(call: KBox<Call<H>>) -> Option<(Received<H>, Option<Whole>)> {
    let Call { message, whole, .. } = KBox::into_inner(call);
    Some((message?, whole))
}

/// Takes a Call's message out.
fn message_of<H: EndpointEvents>(call: KBox<Call<H>>) -> Option<Received<H>> {
    call_message(call).map(|(message, _)| message)
}

/// Prepares the Reads of a Call, and copies what is not read.
///
/// # Errors
///
/// As for [`crate::endpoint::Endpoint::transfer`], and `EINVAL` if something does not fit.
fn prepare<H: EndpointEvents>(
    call: &Call<H>,
    plan: &Plan,
    pages: &mut FreshPages,
) -> Result<Transfers<H>> {
    let mut transfers = Transfers::new();
    if let Layout::Split { .. } = plan.layout {
        let mut at = 0_usize;
        let mut read_next = |segment: &Segment| -> Result {
            read(call, pages, at, segment, &mut transfers)?;
            at = at.checked_add(segment.length as usize).ok_or(EINVAL)?;
            Ok(())
        };
        match call.only_chunk() {
            Some(only) => read_next(&only.segment)?,
            None => call
                .header()
                .ok_or(EINVAL)?
                .reads()
                .try_for_each(|entry| read_next(&entry.segment))?,
        }
        // Padding, and the rest of the page: SUNRPC looks for a path of a link in one piece there,
        // and would find what the page held before if the chunk is only a part of it.
        let rest = plan.len.next_multiple_of(PAGE_SIZE) - at;
        pages.write(at, ZEROES.get(..rest).ok_or(EINVAL)?)?;
        return Ok(transfers);
    }
    let header = call.header().ok_or(EINVAL)?;
    let mut result = Ok(());
    let walked = walk(&header, |piece| {
        result = match &piece.source {
            Source::Inline(from) => header
                .payload
                .get(*from..)
                .and_then(|rest| rest.get(..piece.len))
                .ok_or(EINVAL)
                .and_then(|bytes| pages.write(piece.at, bytes)),
            Source::Padding => [0; 3]
                .get(..piece.len)
                .ok_or(EINVAL)
                .and_then(|bytes| pages.write(piece.at, bytes)),
            Source::Segment(segment) => read(call, pages, piece.at, segment, &mut transfers),
        };
        result.is_ok().then_some(())
    });
    result?;
    walked.ok_or(EINVAL)?;
    Ok(transfers)
}

/// Returns the largest number of pages that this many octets in a row can be in.
pub(super) fn pages_of(octets: usize) -> usize {
    octets.div_ceil(PAGE_SIZE).saturating_add(1)
}

/// Prepares the Read of one segment to octet `at` of the pages.
fn read<H: EndpointEvents>(
    call: &Call<H>,
    pages: &FreshPages,
    at: usize,
    segment: &Segment,
    transfers: &mut Transfers<H>,
) -> Result {
    let mut left = segment.length as usize;
    if left == 0 {
        return Ok(());
    }
    let mut memory = KVec::with_capacity(pages_of(left), GFP_KERNEL)?;
    let mut at = at;
    while left > 0 {
        let fragment = pages.fragment(at, left).ok_or(EINVAL)?;
        let len = fragment.len() as usize;
        memory.push_within_capacity(fragment)?;
        at = at.checked_add(len).ok_or(EINVAL)?;
        left -= len;
    }
    let endpoint = call.endpoint().ok_or(ENOTCONN)?;
    endpoint.transfer(Direction::FromDevice, memory, segment, transfers)
}
