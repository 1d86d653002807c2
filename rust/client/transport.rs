// SPDX-License-Identifier: GPL-2.0

//! The state of a transport of the client.

use super::{
    connecting::Connecting,
    reverse_slots::ReverseSlots, //
};
use crate::endpoint::{
    ConnectionEvents,
    EndpointOwner, //
};
use crate::kext::debugfs::Directory;
use crate::kext::delayed_work::{
    impl_has_delayed_work_ext,
    DelayedWork, //
};
use crate::kext::prelude::*;
use crate::kext::ratelimit::pr_warn_ratelimited;
use crate::link::channel::CHECK_INTERVAL;
use crate::link::GROWTH_INTERVAL;
use crate::observe::trace;
use crate::proto::v2_2016::props::{
    Told,
    Wishes, //
};
use crate::requester::{
    self,
    fences::Fences,
    Requester, //
};
use crate::responder::stats::Stats;
use crate::sunrpc::{
    tunables,
    XprtHandle, //
};

/// The work of connecting.
pub(super) const CONNECT_WORK: u64 = 0;
/// The work of adding regions.
pub(super) const REGION_WORK: u64 = 1;
/// The work of checking whether the server makes progress.
pub(super) const CHECK_WORK: u64 = 2;
/// The work of looking whether the connection that is being made is still wanted.
pub(super) const ABANDON_WORK: u64 = 3;
/// The work of looking whether the next attempt to connect may begin.
pub(super) const PAUSE_WORK: u64 = 4;
/// The same as [`CHECK_WORK`] for a connection on which nothing happens: no idle CPU is woken for
/// it.
pub(super) const IDLE_WORK: u64 = 5;

/// A transport of the client.
#[pin_data]
pub(crate) struct Client {
    /// Calls to the server.
    #[pin]
    pub(super) requester: Requester<Client>,
    /// Slots for the server's Calls.
    #[pin]
    pub(super) reverse: ReverseSlots<Client>,
    /// The counters of these.
    pub(super) responder: Arc<Stats>,
    /// The connection's owner. Locked by connecting and disconnecting only.
    #[pin]
    pub(super) owner: Mutex<Option<EndpointOwner<Client>>>,
    /// Ends an attempt to connect.
    #[pin]
    pub(super) connecting: Connecting<Client>,
    /// See [`super::connect::work`].
    #[pin]
    pub(super) connect_work: DelayedWork<Client, CONNECT_WORK>,
    /// See [`super::connect::add_regions`].
    #[pin]
    pub(super) region_work: DelayedWork<Client, REGION_WORK>,
    /// See [`Client::check`].
    #[pin]
    pub(super) check_work: DelayedWork<Client, CHECK_WORK>,
    /// See [`Client::check`].
    #[pin]
    pub(super) idle_work: DelayedWork<Client, IDLE_WORK>,
    /// See [`super::connect::look_whether_abandoned`].
    #[pin]
    pub(super) abandon_work: DelayedWork<Client, ABANDON_WORK>,
    /// See [`super::connect::look_whether_paused`].
    #[pin]
    pub(super) pause_work: DelayedWork<Client, PAUSE_WORK>,
    /// The files in debugfs. They refer back to us, so `destroy` takes them away.
    #[pin]
    pub(super) directory: Mutex<Option<Directory<Client>>>,
    /// The transport by which SUNRPC knows it. The last field, since fields are dropped in order:
    /// the code that frees the transport looks whether this is gone.
    pub(super) xprt: XprtHandle,
}

impl_has_delayed_work_ext! {
    impl HasDelayedWork<CONNECT_WORK> for Client { self.connect_work }
    impl HasDelayedWork<REGION_WORK> for Client { self.region_work }
    impl HasDelayedWork<CHECK_WORK> for Client { self.check_work }
    impl HasDelayedWork<ABANDON_WORK> for Client { self.abandon_work }
    impl HasDelayedWork<PAUSE_WORK> for Client { self.pause_work }
    impl HasDelayedWork<IDLE_WORK> for Client { self.idle_work }
}

impl Client {
    /// Ends the connection, if there is one. The caller excludes sending and connecting, see above.
    pub(super) fn disconnect_link(&self, reason: trace::End) {
        let owner = self.owner.lock().take();
        if let Some(owner) = owner {
            trace::disconnect(self.number(), reason);
            self.requester.end_link(owner);
        }
    }

    /// Checks whether the server makes progress.
    pub(super) fn check(this: &Arc<Self>) {
        // In any case, also without a connection: else the next fence would take a check for
        // arranged.
        let fences = this.requester.check_fences();
        let Some(link) = this.requester.link() else {
            return;
        };
        // Other Calls for which there are too few credits go with chunks.
        let again = link.channel().check(this.requester.is_patient());
        if fences == Fences::Late {
            pr_warn_ratelimited!(
                "server {}: not accepting messages, cannot release memory of aborted RPCs; \
                 reconnecting\n",
                this.xprt.display()
            );
            this.xprt.force_disconnect();
        }
        let mut is_growing = false;
        let has_optional = link.channel().rules().has_optional;
        if has_optional {
            this.tell_wishes();
            requester::reply::weigh_credits(&**this);
            is_growing = link.grow_receives(tunables::max_inline_read());
        }
        requester::reply::act(&**this, &link);
        if is_growing {
            DelayedWork::<Self, CHECK_WORK>::schedule(this, GROWTH_INTERVAL);
        } else if again || fences != Fences::None {
            <Self as requester::Host>::watch(this);
        } else if has_optional {
            // Settings may change at any time, of which nobody tells.
            DelayedWork::<Self, IDLE_WORK>::schedule(this, CHECK_INTERVAL);
        }
    }

    /// Has the server told what is wanted of the connection now, where that can be told.
    pub(super) fn tell_wishes(&self) {
        let Some(link) = self.requester.link() else {
            return;
        };
        if link.channel().rules().has_optional {
            link.channel().wish(&self.wishes());
            link.channel().request(&requests());
            requester::reply::act(self, &link);
        }
    }

    /// Returns what is wanted of a connection now.
    pub(super) fn wishes(&self) -> Wishes {
        Wishes {
            invalidation: tunables::client_remote_invalidation() != 0,
            takes_calls: self.reverse.is_open(),
        }
    }

    /// Does what the session of the connection wants, if there is one.
    pub(super) fn act(&self) {
        if let Some(link) = self.requester.link() {
            requester::reply::act(self, &link);
        }
    }

    /// Ends the connection and tells SUNRPC.
    pub(super) fn close_link(this: &Arc<Self>, reason: trace::End) {
        this.disconnect_link(reason);
        this.xprt.bump_connect_cookie();
        this.xprt.disconnect_done();
    }
}

/// Returns the values that an administrator wants a server to have, where it can be asked.
fn requests() -> Told {
    let size = tunables::client_request_receive_size();
    Told {
        receive_size: (size != 0).then_some(size),
        invalidation: tunables::client_request_remote_invalidation().checked_sub(1),
        reverse: None,
    }
}
