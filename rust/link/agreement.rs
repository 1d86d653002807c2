// SPDX-License-Identifier: GPL-2.0

//! What the two ends of a connection have agreed on, for whoever wants to see it: a trace event and a log line when it is
//! known, debugfs at any time.

use crate::kext::debugfs::lines;
use crate::kext::log::log_debug;
use crate::observe::trace::{self, Number};
use crate::proto::props::{Properties, Reverse, Terms};
use crate::proto::session::Dialect;
use crate::sunrpc::AddressText;
use kernel::fmt;
use kernel::prelude::*;
use kernel::seq_file::SeqFile;

/// What holds on a connection, seen from one end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agreement {
    /// What is spoken.
    pub(crate) dialect: Dialect,
    /// The sizes in force, in octets. In Version One nothing is agreed about segments: zero.
    pub(crate) terms: Terms,
    /// How much of reverse-direction operation is possible, by a property of Version Two.
    pub(crate) reverse: Reverse,
    /// What the peer has told, in Version Two.
    pub(crate) peer: Option<Properties>,
    /// How many messages, in Version One Calls, this end may send now.
    pub(crate) send_window: u32,
    /// How many the peer may send now, as far as it knows.
    pub(crate) receive_window: u32,
}

impl Agreement {
    /// In Version One: the inline thresholds for sending and receiving, and how many Calls there may be each way.
    pub(crate) fn one(
        (send_size, receive_size): (u32, u32),
        (send_window, receive_window): (u32, u32),
    ) -> Self {
        Self {
            dialect: Dialect::One,
            terms: Terms {
                send_size,
                receive_size,
                segment_size: 0,
                segment_count: 0,
            },
            reverse: Reverse::None,
            peer: None,
            send_window,
            receive_window,
        }
    }

    /// The number of the version.
    fn version(&self) -> u32 {
        match self.dialect {
            Dialect::One => 1,
            Dialect::Two | Dialect::Earlier => 2,
        }
    }

    /// The document that the version is described by.
    fn dialect(&self) -> &'static CStr {
        match self.dialect {
            Dialect::One => c"rfc8166",
            Dialect::Two => c"draft-07",
            Dialect::Earlier => c"draft-2016",
        }
    }

    /// Says so: once for each connection, when it is known what is spoken and what the peer has told. If the peer tells it
    /// later than it might, what holds until then is told before.
    pub(crate) fn tell(&self, number: Number, peer: &AddressText) {
        trace::agreed(
            number,
            self.version(),
            self.dialect(),
            self.terms.send_size,
            self.terms.receive_size,
            self.terms.segment_size,
            self.terms.segment_count,
            self.reverse.name(),
            self.send_window,
            self.receive_window,
        );
        log_debug!("connection {number} with {peer}: {self}");
    }

    /// The lines of the file `state` in debugfs about Version Two; in Version One there are none.
    pub(crate) fn show_two(&self, m: &SeqFile) {
        let Some(peer) = &self.peer else { return };
        lines!(m,
            "segment_size": self.terms.segment_size,
            "segment_count": self.terms.segment_count,
            "reverse_direction": self.reverse.name().to_str().unwrap_or("?"),
            "peer_send_size": peer.send_size,
            "peer_receive_size": peer.receive_size,
            "peer_segment_size": peer.segment_size,
            "peer_segment_count": peer.segment_count,
        );
    }

    /// What is spoken, by the name that trace events have for it.
    pub(crate) fn dialect_name(&self) -> &'static str {
        self.dialect().to_str().unwrap_or("?")
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Terms {
            send_size,
            receive_size,
            segment_size,
            segment_count,
        } = self.terms;
        write!(
            f,
            "version={} dialect={} send_size={send_size} receive_size={receive_size} \
             segment_size={segment_size} segment_count={segment_count} reverse={} send_window={} receive_window={}",
            self.version(),
            self.dialect_name(),
            self.reverse.name().to_str().unwrap_or("?"),
            self.send_window,
            self.receive_window,
        )
    }
}
