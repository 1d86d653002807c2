// SPDX-License-Identifier: GPL-2.0

//! The limits that errors teach about the chunks that a peer can use
//! (draft-ietf-nfsv4-rpcrdma-version-two-07, 7.3).
//!
//! Of a Call that was answered with such an error the Requester may send another form. Each lesson
//! takes away a form that was refused, for the rest of the connection, and a Call is sent again
//! only if its form is one of those. So a peer that refuses everything comes to an end soon, and
//! Calls to come are not refused for the same reason.

use super::{
    super::v2::{
        RdmaError,
        NO_XID, //
    },
    UNLIMITED, //
};

/// The chunks and sizes that a Call asked for, in the form in which it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Segments of the Call chunk, or in Version One of the Position Zero Read chunk.
    pub(crate) call: usize,
    /// Segments of the Read chunk.
    pub(crate) read: usize,
    /// Segments of the Write chunk.
    pub(crate) write: usize,
    /// Octets that it has room for: all that there may be, without XDR padding.
    pub(crate) write_len: u32,
    /// Segments of the Reply chunk.
    pub(crate) reply: usize,
    /// Set if that chunk is a Reply buffer, from which the Reply is copied to its place.
    pub(crate) reply_buffer: bool,
    /// Octets of the largest Reply that the chosen form has room for.
    pub(crate) reply_len: u32,
    /// Set if the Reply without its Write chunk may need more than one message.
    pub(crate) long_reply: bool,
    /// Set if the Call may be executed twice.
    pub(crate) repeatable: bool,
    /// Set if the Call was sent in more than one message.
    pub(crate) continued: bool,
}

impl Asked {
    /// Returns how many segments the chunk has that has most.
    fn longest(&self) -> usize {
        self.call.max(self.read).max(self.write).max(self.reply)
    }

    /// Returns whether an error with the transaction ID of this Call can be about it.
    ///
    /// The control messages of this end have the ID zero, which is that of a Call now and then, and
    /// some errors are about them (6.3.2 to 6.3.4): what is told in the wrong way always is
    /// (7.2.2), what comes at the wrong time is unless the Call was one of several messages itself
    /// (7.1.4).
    pub(crate) const fn is_meant_by(&self, error: &RdmaError, xid: u32) -> bool {
        match error {
            RdmaError::BadProperty => false,
            RdmaError::Continuation => xid != NO_XID || self.continued,
            _ => true,
        }
    }
}

/// Which forms are of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Usable {
    /// Read chunks. The Call chunk is none (7.3.1).
    pub(crate) read: bool,
    /// Write chunks.
    pub(crate) write: bool,
    /// The most segments of a chunk.
    pub(crate) segments: usize,
    /// Replies in more than one message.
    pub(crate) long_reply: bool,
}

impl Usable {
    /// Nothing is known to be of no use.
    pub(crate) const ALL: Self = Self {
        read: true,
        write: true,
        segments: UNLIMITED,
        long_reply: true,
    };

    /// Takes in an error about a Call. Returns whether to send the Call again, in a form that is
    /// left; else its RPC ends with an error.
    ///
    /// Chunks are refused before a Call is executed. That a Reply has no room is found afterwards,
    /// and then the Call is sent again only if it may be executed twice (6.6.4).
    pub(crate) fn learn(&mut self, error: &RdmaError, asked: &Asked) -> bool {
        match *error {
            RdmaError::ReadChunks { .. } if asked.read > 0 => {
                self.read = false;
                true
            }
            RdmaError::WriteChunks { .. } if asked.write > 0 => {
                self.write = false;
                true
            }
            RdmaError::Segments { max } if max > 0 => {
                let max = usize::try_from(max).unwrap_or(usize::MAX);
                self.segments = self.segments.min(max);
                asked.longest() > self.segments
            }
            // The chunk had room for all the data that there may be, so nothing helps, unless the
            // peer wants to write the padding as well: a Reply chunk has room for that.
            RdmaError::WriteResource { needed, .. }
                if asked.write > 0
                    && needed > asked.write_len
                    && needed <= asked.write_len.saturating_add(3) =>
            {
                self.write = false;
                asked.repeatable
            }
            RdmaError::ReplyResource { needed }
                if asked.long_reply && needed > 0 && needed <= asked.reply_len =>
            {
                self.long_reply = false;
                asked.repeatable
            }
            _ => false,
        }
    }
}

#[cfg_attr(
    rpcrdma_kunit,
    allow(unsafe_code),
    ::kernel::macros::kunit_tests(rpcrdma_proto_usable)
)]
#[cfg_attr(not(rpcrdma_kunit), cfg(test))]
mod tests {
    use super::*;

    /// A Call with one chunk of each kind, whose Reply may take several messages.
    const ASKED: Asked = Asked {
        call: 0,
        read: 2,
        write: 3,
        write_len: 10_001,
        reply: 1,
        reply_buffer: false,
        reply_len: 12_000,
        long_reply: true,
        repeatable: true,
        continued: false,
    };

    /// What is left after an error about a Call, if it is sent again.
    fn left(error: RdmaError, asked: &Asked) -> Option<Usable> {
        let mut usable = Usable::ALL;
        usable.learn(&error, asked).then_some(usable)
    }

    /// Section 7.3: each error takes away what it is about.
    #[test]
    fn what_was_refused_is_not_used_again() {
        let all = Usable::ALL;
        for (error, expected) in [
            (
                RdmaError::ReadChunks { max: 0 },
                Usable { read: false, ..all },
            ),
            (
                RdmaError::WriteChunks { max: 0 },
                Usable {
                    write: false,
                    ..all
                },
            ),
            (
                RdmaError::Segments { max: 2 },
                Usable { segments: 2, ..all },
            ),
            (
                RdmaError::WriteResource {
                    index: 1,
                    needed: 10_004,
                },
                Usable {
                    write: false,
                    ..all
                },
            ),
            (
                RdmaError::ReplyResource { needed: 12_000 },
                Usable {
                    long_reply: false,
                    ..all
                },
            ),
        ] {
            assert_eq!(left(error, &ASKED), Some(expected));
        }
    }

    /// Two Calls were under way when the first of them was refused: both are sent again.
    #[test]
    fn a_lesson_known_already_helps_as_well() {
        let mut usable = Usable::ALL;
        for _ in 0..2 {
            assert!(usable.learn(&RdmaError::ReadChunks { max: 0 }, &ASKED));
            assert!(usable.learn(&RdmaError::Segments { max: 1 }, &ASKED));
            assert!(usable.learn(&RdmaError::Segments { max: 2 }, &ASKED));
        }
        assert_eq!(usable.segments, 1);
    }

    /// Sections 7.3.1 to 7.3.5: an error, if nothing else can be offered.
    #[test]
    fn there_may_be_nothing_else_to_offer() {
        let special = Asked {
            call: 2,
            read: 0,
            ..ASKED
        };
        let inline = Asked {
            repeatable: true,
            ..Asked::default()
        };
        for (error, asked) in [
            (RdmaError::ReadChunks { max: 1 }, &special),
            (RdmaError::ReadChunks { max: 0 }, &inline),
            (RdmaError::WriteChunks { max: 0 }, &inline),
            (RdmaError::Segments { max: 0 }, &ASKED),
            (RdmaError::Segments { max: 3 }, &ASKED),
            (RdmaError::Segments { max: 1 }, &inline),
            (
                RdmaError::WriteResource {
                    index: 1,
                    needed: 10_005,
                },
                &ASKED,
            ),
            // It had that room.
            (
                RdmaError::WriteResource {
                    index: 1,
                    needed: 10_001,
                },
                &ASKED,
            ),
            (
                RdmaError::WriteResource {
                    index: 0,
                    needed: 0,
                },
                &ASKED,
            ),
            (
                RdmaError::WriteResource {
                    index: 1,
                    needed: 1,
                },
                &inline,
            ),
            (RdmaError::ReplyResource { needed: 0 }, &ASKED),
            (RdmaError::ReplyResource { needed: 12_001 }, &ASKED),
            (RdmaError::ReplyResource { needed: 1 }, &inline),
            (RdmaError::BadXdr, &ASKED),
            (RdmaError::System, &ASKED),
        ] {
            assert_eq!(left(error, asked), None);
        }
    }

    /// Sections 7.1.4 and 7.2.2: errors about our own GRANTs and properties end no RPC.
    #[test]
    fn errors_about_control_messages_are_told_apart() {
        let continued = Asked {
            continued: true,
            ..ASKED
        };
        for (error, asked, xid, expected) in [
            (RdmaError::BadProperty, &ASKED, 7, false),
            (RdmaError::BadProperty, &continued, 0, false),
            (RdmaError::Continuation, &ASKED, 0, false),
            (RdmaError::Continuation, &continued, 0, true),
            (RdmaError::Continuation, &ASKED, 7, true),
            (RdmaError::BadXdr, &ASKED, 0, true),
            (RdmaError::System, &ASKED, 0, true),
        ] {
            assert_eq!(asked.is_meant_by(&error, xid), expected);
        }
    }

    /// A Call chunk beside a Read chunk: READ_CHUNKS is about the latter only, SEGMENTS about each
    /// of them.
    #[test]
    fn a_call_chunk_is_no_read_chunk() {
        let both = Asked {
            call: 4,
            read: 2,
            write: 0,
            reply: 0,
            ..ASKED
        };
        let all = Usable::ALL;
        for (error, expected) in [
            (
                RdmaError::ReadChunks { max: 0 },
                Some(Usable { read: false, ..all }),
            ),
            (
                RdmaError::Segments { max: 3 },
                Some(Usable { segments: 3, ..all }),
            ),
            (RdmaError::Segments { max: 4 }, None),
            (RdmaError::WriteChunks { max: 0 }, None),
        ] {
            assert_eq!(left(error, &both), expected);
        }
    }

    /// Section 6.6.4: what must not be executed twice is not sent again once it has been.
    #[test]
    fn what_was_executed_is_not_sent_again() {
        let once = Asked {
            repeatable: false,
            ..ASKED
        };
        for (error, again) in [
            (RdmaError::ReadChunks { max: 0 }, true),
            (RdmaError::WriteChunks { max: 0 }, true),
            (RdmaError::Segments { max: 1 }, true),
            (
                RdmaError::WriteResource {
                    index: 1,
                    needed: 10_002,
                },
                false,
            ),
            (RdmaError::ReplyResource { needed: 100 }, false),
        ] {
            assert_eq!(left(error, &once).is_some(), again);
        }
        // The lesson is learnt all the same.
        let mut usable = Usable::ALL;
        let error = RdmaError::ReplyResource { needed: 100 };
        assert!(!usable.learn(&error, &once) && !usable.long_reply);
    }
}
