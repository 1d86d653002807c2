// SPDX-License-Identifier: GPL-2.0

//! The lines about a channel in files of debugfs, at either end of a connection.

use super::Channel;
use crate::kext::debugfs::lines;
use crate::proto::auth::AuthVerdict;
use kernel::seq_file::SeqFile;

impl Channel {
    /// Writes what was agreed on, and what the peer has told.
    pub(crate) fn show(&self, m: &SeqFile) {
        let agreement = self.agreement();
        lines!(m,
            "version": agreement.version.number(),
            "dialect": agreement.dialect_name(),
            "inline_send": agreement.terms.send_size,
            "inline_receive": agreement.terms.receive_size,
        );
        agreement.show_two(m);
        if !agreement.version.rules().has_properties {
            let told = &self.in_one().peer;
            lines!(m,
                "peer_send_size": told.send_size,
                "peer_receive_size": told.receive_size,
                "peer_remote_invalidation": u8::from(told.remote_invalidation),
            );
        }
        if let Some(what) = self.authentication() {
            lines!(m, "host_authentication": what);
        }
    }

    /// Returns what has become of the authentication of the peer, [`None`] where there can't be
    /// any.
    fn authentication(&self) -> Option<&'static str> {
        let verdict = self.state.lock().settlement.verdict();
        self.may_speak_two.then_some(match verdict {
            _ if !self.authenticates => "off",
            None => "pending",
            Some(AuthVerdict::Accept) => "accepted",
            Some(AuthVerdict::Ignore) => "none",
            Some(AuthVerdict::Refuse(_)) => "refused",
        })
    }

    /// Writes how many messages were counted into a file of debugfs, where messages are. Returns
    /// whether they are.
    pub(crate) fn show_windows(&self, m: &SeqFile) -> bool {
        if !self.rules().counts_messages {
            return false;
        }
        let state = self.state.lock();
        let (outgoing, incoming) = state.connection.session.windows();
        let (sent, send_limit) = (outgoing.sent(), outgoing.limit());
        let (received, receive_left) = (incoming.received(), incoming.remaining());
        drop(state);
        lines!(m,
            "messages_sent": sent,
            "send_limit": send_limit,
            "messages_received": received,
            "receive_left": receive_left,
        );
        true
    }
}
