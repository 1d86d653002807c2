// SPDX-License-Identifier: GPL-2.0

//! The agreement of the two ends of a connection, as it is shown: a trace event and a log line when
//! it is known, debugfs at any time.

use crate::kext::debugfs::lines;
use crate::kext::log::log_debug;
use crate::observe::trace::{
    self,
    Number, //
};
use crate::proto::connection::Agreement;
use crate::proto::props::AgreedTerms;
use crate::proto::session::exchange::Said;
use crate::proto::v2_2016::props::{
    self,
    Property, //
};
use crate::sunrpc::AddressText;
use kernel::fmt;
use kernel::seq_file::SeqFile;
use kernel::seq_print;

impl Agreement {
    /// Says so: once for each connection, when it is known what is spoken and what the peer has
    /// told. If the peer tells it later than it might, what holds until then is told before.
    pub(crate) fn tell(&self, number: Number, peer: &AddressText) {
        trace::agreed(
            number,
            self.version.number(),
            self.version.rules().document,
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
        if let Some(said) = &self.earlier {
            self.show_earlier(said, m);
        }
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

    /// The same in the earlier protocol.
    fn show_earlier(&self, said: &Said, m: &SeqFile) {
        let level = |value| props::level(value).name().to_str().unwrap_or("?");
        lines!(m,
            "reverse_direction": self.reverse.name().to_str().unwrap_or("?"),
            "own_receive_size": said.own.receive_size,
            "own_remote_invalidation": said.own.invalidation,
            "own_reverse_direction": level(said.own.reverse),
            "request_unanswered": u32::from(said.is_asked),
        );
        for property in Property::ALL {
            let name = property.name().to_str().unwrap_or("?");
            let Some(wanted) = said.requested.get(property) else {
                continue;
            };
            // What the peer has already is not asked for.
            let answer = said.answered.get(property);
            let outcome = answer.map_or(c"-", |answer| answer.outcome());
            let outcome = outcome.to_str().unwrap_or("?");
            seq_print!(m, "requested_{name}: {wanted} {outcome}\n");
        }
        let Some(peer) = &said.peer else { return };
        let constant = said.peer_constant;
        lines!(m,
            "peer_receive_size": peer.receive_size,
            "peer_remote_invalidation": peer.invalidation,
            "peer_reverse_direction": level(peer.reverse),
            "peer_constant": u32::from(constant.receive_size)
                | u32::from(constant.invalidation) << 1
                | u32::from(constant.reverse) << 2,
        );
    }

    /// Returns the name that trace events have for the protocol that is spoken.
    pub(crate) fn dialect_name(&self) -> &'static str {
        self.version.rules().document.to_str().unwrap_or("?")
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AgreedTerms {
            send_size,
            receive_size,
            segment_size,
            segment_count,
        } = self.terms;
        write!(
            f,
            "version={} dialect={} send_size={send_size} receive_size={receive_size} \
             segment_size={segment_size} segment_count={segment_count} reverse={} send_window={} \
             receive_window={}",
            self.version.number(),
            self.dialect_name(),
            self.reverse.name().to_str().unwrap_or("?"),
            self.send_window,
            self.receive_window,
        )
    }
}
