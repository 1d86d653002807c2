// SPDX-License-Identifier: GPL-2.0

//! The tables of operations by which SUNRPC calls a [`ListenTransport`] or a [`ServerTransport`].

use super::{
    rqst::{
        CallRqst,
        ReplyRqst, //
    },
    xprt::{
        Server,
        SvcXprt, //
    }, //
};
use crate::kext::prelude::*;
use crate::{
    kext::net::SockAddr,
    sys, //
};
use core::{
    mem::ManuallyDrop,
    ptr, //
};

/// A transport that listens.
pub(crate) trait ListenTransport: Send + Sync + Sized + 'static {
    /// The type of the connections that it accepts.
    type Connection: ServerTransport;

    /// Returns the part of the transport that SUNRPC sees.
    fn xprt(&self) -> &SvcXprt;

    /// Makes a transport that listens at `address`.
    ///
    /// # Errors
    ///
    /// The error is returned to the administrator who starts the service.
    fn create(server: Server<'_>, address: SockAddr<'_>) -> Result<Arc<Self>>;

    /// Accepts a connection, if there is one. May sleep. Called by one thread at a time.
    fn accept(this: &Arc<Self>) -> Option<Arc<Self::Connection>>;

    /// Stops accepting connections. When this returns, the namespace of the transport is not used
    /// any more. May sleep.
    fn detach(this: &Arc<Self>);

    /// Ends everything that could call the transport, and all references to it. No other call
    /// follows.
    fn free(this: &Arc<Self>);
}

/// The context of a Call, which is kept until its Reply was sent or the Call was given up.
pub(crate) trait CallContext: Send + Sync + 'static {
    /// Returns the message of the Call. While the context exists, it stays at the same place, and
    /// the memory is not used otherwise.
    fn message(&self) -> &[u8];

    /// Returns whether the message may be in memory without a `struct page`. SUNRPC and nfsd must
    /// not be given such memory.
    fn is_scattered(&self) -> bool;

    /// Notes that octets `offset` to `offset + len` of the Reply are a result that may go into a
    /// chunk of its own. Called in the order of the results.
    ///
    /// SUNRPC allows an error here. There is none: nfsd cannot take back a READ whose pages are in
    /// the Reply already, and warns about it. A result that has no room is refused when the Reply
    /// is sent.
    fn result_payload(&mut self, offset: u32, len: u32);

    /// Returns whether no thread has begun to send a Reply.
    fn is_unanswered(&self) -> bool;
}

/// A transport that has a connection.
pub(crate) trait ServerTransport: Send + Sync + Sized + 'static {
    /// The context that is kept with a Call.
    type Context: CallContext;

    /// Returns the part of the transport that SUNRPC sees.
    fn xprt(&self) -> &SvcXprt;

    /// Returns whether Calls may be taken in now. If not, the transport calls [`SvcXprt::enqueue`]
    /// as soon as they may. May be called from any context.
    fn has_room(&self) -> bool;

    /// Takes a Call in. Returns its length, or zero if there is none.
    fn recvfrom(this: &Arc<Self>, rqst: CallRqst<'_, Self>) -> usize;

    /// Sends a Reply. May sleep.
    ///
    /// # Errors
    ///
    /// If the connection is lost.
    fn sendto(this: &Arc<Self>, rqst: ReplyRqst<'_, Self>) -> Result;

    /// Notes that a Call was given up without a Reply. Its context is gone. May sleep.
    fn given_up(this: &Arc<Self>);

    /// Begins to end the connection. Threads that send return soon after.
    fn detach(this: &Arc<Self>);

    /// Ends everything that could call the transport, as [`ListenTransport::free`] does.
    fn free(this: &Arc<Self>);
}

/// Returns the transport around a `svc_xprt`.
///
/// # Safety
///
/// `xprt` has the operations of a `T`, was published, and is not freed while the result is used.
unsafe fn owner<T>(xprt: *mut sys::svc_xprt) -> ManuallyDrop<Arc<T>> {
    // SAFETY: `xprt` was published, so it is in a `SvcXprt`, whose owner comes from `Arc::into_raw`
    // of a `T`. The caller guarantees that it is not freed while the result is used. The count
    // stays with SUNRPC.
    ManuallyDrop::new(unsafe { Arc::from_raw(SvcXprt::from_raw(xprt).owner.get().cast()) })
}

/// Returns the transport around a `svc_xprt` that has a connection, if the transport is a `T`.
///
/// # Safety
///
/// `xprt` is null, or valid for as long as the result is used. All connections of our class are
/// `T`s.
pub(in crate::sunrpc) unsafe fn connection<T: ServerTransport>(
    xprt: *mut sys::svc_xprt,
) -> Option<ManuallyDrop<Arc<T>>> {
    let ours = !xprt.is_null()
        // SAFETY: The caller guarantees that it is valid.
        && unsafe { ptr::eq((*xprt).xpt_ops, ConnectionOps::<T>::TABLE) };
    // SAFETY: Published connections of this class have these operations, and no other transport
    // has, so this is a `T`. The caller guarantees that it stays valid.
    ours.then(|| unsafe { owner(xprt) })
}

/// Returns whether SUNRPC has ended a transport.
///
/// # Safety
///
/// `xprt` is valid.
pub(in crate::sunrpc) unsafe fn is_dead(xprt: *mut sys::svc_xprt) -> bool {
    // SAFETY: The caller guarantees that the transport is valid. Flags are accessed atomically.
    unsafe { sys::svc_xprt_test_flag(xprt, sys::XPT_DEAD) }
}

/// Gives a transport to SUNRPC, which frees it with `xpo_free` of `ops`.
fn publish<T>(
    this: Arc<T>,
    xprt: impl FnOnce(&T) -> &SvcXprt,
    ops: &'static sys::svc_xprt_ops,
) -> *mut sys::svc_xprt {
    let raw = xprt(&this).as_raw();
    // SAFETY: SUNRPC does not know the transport yet.
    unsafe { (*raw).xpt_ops = ops };
    // INVARIANT: The reference belongs to SUNRPC from now on.
    let owner = Arc::into_raw(this);
    // SAFETY: `raw` is the start of the `SvcXprt` that is part of the transport, which the
    // reference keeps.
    unsafe { SvcXprt::from_raw(raw).owner.set(owner.cast()) };
    raw
}

/// The operations of a listener, which are those of the class.
pub(super) struct ListenOps<L>(PhantomData<L>);

impl<L: ListenTransport> ListenOps<L> {
    /// The table.
    pub(super) const TABLE: &'static sys::svc_xprt_ops = &sys::svc_xprt_ops {
        xpo_create: Some(Self::create_callback),
        xpo_accept: Some(Self::accept_callback),
        xpo_has_wspace: Some(Self::has_wspace_callback),
        xpo_release_ctxt: Some(Self::release_ctxt_callback),
        xpo_detach: Some(Self::detach_callback),
        xpo_free: Some(Self::free_callback),
        xpo_kill_temp_xprt: Some(kill_temp_xprt_callback),
        ..pin_init::zeroed()
    };

    /// # Safety
    ///
    /// Called by SUNRPC with a service, its namespace, and an address of `len` octets.
    unsafe extern "C" fn create_callback(
        serv: *mut sys::svc_serv,
        net: *mut sys::net,
        address: *mut sys::sockaddr,
        len: c_int,
        _flags: c_int,
    ) -> *mut sys::svc_xprt {
        // SAFETY: SUNRPC keeps the service and the namespace during the call, and the service
        // outlives its transports.
        let server = unsafe { Server::from_raw(serv, net) };
        // SAFETY: SUNRPC passes an address of `len` octets.
        let created = unsafe { SockAddr::copy_octets(address, len) }
            .and_then(|address| L::create(server, address));
        match created {
            Ok(this) => {
                this.xprt().set_flag(sys::XPT_CONG_CTRL);
                this.xprt().set_flag(sys::XPT_LISTENER);
                publish(this, L::xprt, Self::TABLE)
            }
            Err(error) => error.to_ptr(),
        }
    }

    /// # Safety
    ///
    /// Called by SUNRPC for a transport with these operations.
    unsafe extern "C" fn accept_callback(xprt: *mut sys::svc_xprt) -> *mut sys::svc_xprt {
        // SAFETY: Only published listeners have this table, so this is an `L`. SUNRPC does not free
        // it during the call.
        let this = unsafe { owner::<L>(xprt) };
        match L::accept(&this) {
            Some(connection) => {
                connection.xprt().set_flag(sys::XPT_CONG_CTRL);
                publish(
                    connection,
                    L::Connection::xprt,
                    ConnectionOps::<L::Connection>::TABLE,
                )
            }
            None => core::ptr::null_mut(),
        }
    }

    /// # Safety
    ///
    /// Called by SUNRPC for a transport with these operations.
    unsafe extern "C" fn has_wspace_callback(_xprt: *mut sys::svc_xprt) -> c_int {
        1
    }

    /// # Safety
    ///
    /// Called by SUNRPC for a transport with these operations. A listener has no contexts.
    unsafe extern "C" fn release_ctxt_callback(_xprt: *mut sys::svc_xprt, _ctxt: *mut c_void) {}

    /// # Safety
    ///
    /// Called by SUNRPC for a transport with these operations.
    unsafe extern "C" fn detach_callback(xprt: *mut sys::svc_xprt) {
        // SAFETY: Only published listeners have this table, so this is an `L`. SUNRPC does not free
        // it during the call.
        let this = unsafe { owner::<L>(xprt) };
        L::detach(&this);
    }

    /// # Safety
    ///
    /// Called by SUNRPC, once, for a transport with these operations; also by `SvcXprt::drop`, for
    /// one that was never published.
    unsafe extern "C" fn free_callback(xprt: *mut sys::svc_xprt) {
        // SAFETY: The object is one of this type, and still in memory: the owner goes below, if
        // there is one.
        let this = unsafe { SvcXprt::from_raw(xprt) };
        this.bury();
        if !this.owner.get().is_null() {
            // SAFETY: The transport was published, and SUNRPC gives its reference back, once.
            let this = ManuallyDrop::into_inner(unsafe { owner::<L>(xprt) });
            L::free(&this);
        }
    }
}

/// # Safety
///
/// None. SUNRPC calls it when a local address goes away. There is nothing to do: what is under way
/// is flushed when the connection is closed.
unsafe extern "C" fn kill_temp_xprt_callback(_xprt: *mut sys::svc_xprt) {}

/// The operations of a connection.
struct ConnectionOps<T>(PhantomData<T>);

impl<T: ServerTransport> ConnectionOps<T> {
    /// The table.
    const TABLE: &'static sys::svc_xprt_ops = &sys::svc_xprt_ops {
        xpo_has_wspace: Some(Self::has_wspace_callback),
        xpo_recvfrom: Some(Self::recvfrom_callback),
        xpo_sendto: Some(Self::sendto_callback),
        xpo_result_payload: Some(Self::result_payload_callback),
        xpo_release_ctxt: Some(Self::release_ctxt_callback),
        xpo_detach: Some(Self::detach_callback),
        xpo_free: Some(Self::free_callback),
        xpo_kill_temp_xprt: Some(kill_temp_xprt_callback),
        ..pin_init::zeroed()
    };

    /// # Safety
    ///
    /// Called by SUNRPC for a transport with these operations.
    unsafe extern "C" fn has_wspace_callback(xprt: *mut sys::svc_xprt) -> c_int {
        // SAFETY: Only published connections have this table, so this is a `T`. SUNRPC does not
        // free it during the call.
        unsafe { owner::<T>(xprt) }.has_room().into()
    }

    /// # Safety
    ///
    /// Called by SUNRPC in a thread that has `XPT_BUSY` of its transport, one with these
    /// operations.
    unsafe extern "C" fn recvfrom_callback(rqst: *mut sys::svc_rqst) -> c_int {
        let Some(rqst) = NonNull::new(rqst) else {
            return 0;
        };
        // SAFETY: The transport has these operations, so it is a published `T`. The thread holds a
        // reference to it.
        let this = unsafe { owner::<T>((*rqst.as_ptr()).rq_xprt) };
        // SAFETY: This is `xpo_recvfrom` of that transport, and the request is not used otherwise
        // until it returns.
        let call = unsafe { CallRqst::from_raw(rqst, this.xprt()) };
        c_int::try_from(T::recvfrom(&this, call)).unwrap_or(0)
    }

    /// # Safety
    ///
    /// Called by SUNRPC in a thread with a Reply, for a transport with these operations.
    unsafe extern "C" fn sendto_callback(rqst: *mut sys::svc_rqst) -> c_int {
        let Some(rqst) = NonNull::new(rqst) else {
            return EINVAL.to_errno();
        };
        // SAFETY: The transport has these operations, so it is a published `T`. The thread holds a
        // reference to it.
        let this = unsafe { owner::<T>((*rqst.as_ptr()).rq_xprt) };
        // SAFETY: This is `xpo_sendto` of that transport, and the request is not used otherwise
        // until it returns.
        let reply = unsafe { ReplyRqst::from_raw(rqst) };
        from_result(|| T::sendto(&this, reply).map(|()| 0))
    }

    /// # Safety
    ///
    /// Called by SUNRPC in a thread that makes a Reply, for a transport with these operations.
    unsafe extern "C" fn result_payload_callback(
        rqst: *mut sys::svc_rqst,
        offset: c_uint,
        len: c_uint,
    ) -> c_int {
        // SAFETY: The request is that of the Call which this thread handles, and SUNRPC has
        // authenticated it before.
        let flavor = unsafe { (*rqst).rq_cred.cr_flavor };
        // SAFETY: `CallRqst` has put the context there, a `T::Context`, and only this thread uses
        // it.
        let context = unsafe { &mut *(*rqst).rq_xprt_ctxt.cast::<T::Context>() };
        note_result(context, flavor, offset, len);
        0
    }

    /// # Safety
    ///
    /// Called by SUNRPC for a transport with these operations, once for each context.
    unsafe extern "C" fn release_ctxt_callback(xprt: *mut sys::svc_xprt, context: *mut c_void) {
        if context.is_null() {
            return;
        }
        // SAFETY: The pointer comes from `CallRqst::finish` of a `T`, and SUNRPC forgets it with
        // this call.
        let context = unsafe { KBox::<T::Context>::from_raw(context.cast()) };
        let unanswered = context.is_unanswered();
        drop(context);
        if unanswered {
            // SAFETY: Only published connections have this table, so this is a `T`. The caller has
            // a reference to the transport, or is about to delete it with one.
            let this = unsafe { owner::<T>(xprt) };
            T::given_up(&this);
        }
    }

    /// # Safety
    ///
    /// Called by SUNRPC for a transport with these operations.
    unsafe extern "C" fn detach_callback(xprt: *mut sys::svc_xprt) {
        // SAFETY: Only published connections have this table, so this is a `T`. SUNRPC does not
        // free it during the call.
        let this = unsafe { owner::<T>(xprt) };
        T::detach(&this);
    }

    /// # Safety
    ///
    /// Called by SUNRPC, once, for a transport with these operations.
    unsafe extern "C" fn free_callback(xprt: *mut sys::svc_xprt) {
        // SAFETY: The object is one of this type, and still in memory: the owner goes below, if
        // there is one.
        unsafe { SvcXprt::from_raw(xprt) }.bury();
        // SAFETY: Only published connections have this table, so this is a `T`. SUNRPC gives its
        // reference back, once.
        let this = ManuallyDrop::into_inner(unsafe { owner::<T>(xprt) });
        T::free(&this);
    }
}

/// The largest flavor of RFC 5531 and its successors. Above it are the pseudoflavors of RPCSEC_GSS.
const MAX_FLAVOR: u32 = 8;

/// The pseudoflavors without integrity and privacy, of Kerberos, LIPKEY and SPKM-3 (RFC 2623,
/// RFC 2847).
const UNPROTECTED: [u32; 3] = [390_003, 390_006, 390_009];

/// Returns whether a checksum or a cipher covers the messages of a flavor. Nothing may be reduced
/// from such messages, whatever the Requester has offered (RFC 8166 section 8.2.2.3, section
/// 11.2.2.3 of the draft).
fn covers_message(flavor: u32) -> bool {
    flavor > MAX_FLAVOR && !UNPROTECTED.contains(&flavor)
}

/// Notes a result of a Reply with this flavor, unless nothing of such a Reply may be reduced: then
/// the offset is one in what is about to be wrapped.
fn note_result(context: &mut impl CallContext, flavor: u32, offset: u32, len: u32) {
    if !covers_message(flavor) {
        context.result_payload(offset, len);
    }
}

#[cfg(rpcrdma_kunit)]
#[kernel::prelude::kunit_tests(rpcrdma_svc_ops)]
mod tests {
    use super::*;

    /// A Call, with the latest result that may go into a chunk.
    struct Noted(Option<(u32, u32)>);

    impl CallContext for Noted {
        fn message(&self) -> &[u8] {
            &[]
        }

        fn is_scattered(&self) -> bool {
            false
        }

        fn result_payload(&mut self, offset: u32, len: u32) {
            self.0 = Some((offset, len));
        }

        fn is_unanswered(&self) -> bool {
            false
        }
    }

    /// RFC 8166 section 8.2.2.3: a result is not reduced if integrity or privacy are in use.
    #[test]
    fn nothing_is_reduced_from_protected_replies() {
        let noted = |flavor| {
            let mut call = Noted(None);
            note_result(&mut call, flavor, 128, 4096);
            call.0
        };
        // AUTH_NONE, AUTH_SYS, and Kerberos for authentication only.
        for flavor in [0, 1, 7, 390_003] {
            assert_eq!(noted(flavor), Some((128, 4096)));
        }
        // Kerberos, LIPKEY and SPKM-3 with integrity, and with privacy.
        for flavor in [390_004, 390_005, 390_007, 390_008, 390_010, 390_011] {
            assert_eq!(noted(flavor), None);
        }
    }
}
