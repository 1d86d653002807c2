// SPDX-License-Identifier: GPL-2.0

//! Reverse-direction Calls: from the server to a service on the client.
//!
//! C header: [`include/linux/sunrpc/bc_xprt.h`](srctree/include/linux/sunrpc/bc_xprt.h)

use super::{
    slot::Slot,
    transport::Transport, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// XID and direction, without which the service does not know whom to answer.
#[cfg(CONFIG_SUNRPC_BACKCHANNEL)]
const MIN_CALL: usize = 8;

/// A slot that was not lent, and why.
pub(crate) type Refused<T> = (Arc<Slot<<T as Transport>::Call>>, Error);

/// Gives a reverse-direction Call to the service that answers such Calls.
///
/// `call` is the RPC message, `xid` its XID in host order. The slot comes back by
/// [`Transport::bc_free_rqst`]: when the Reply was sent, or at once if there is no service. If the
/// service finds the Call worth a Reply, it comes by [`Transport::send_bc_reply`].
///
/// # Errors
///
/// With the slot given back: `EPROTO` if this is no Call, `E2BIG` if it is too large for the slot's memory,
/// `EINVAL` if the slot was not made for this ([`Slot::new_bc`]), `EBUSY` if it is in use, `EOPNOTSUPP` if the
/// kernel has no such services.
pub(crate) fn enqueue_bc_call<T: Transport>(
    owner: &Arc<T>,
    slot: Arc<Slot<T::Call>>,
    xid: u32,
    call: &[u8],
) -> Result<(), Refused<T>> {
    #[cfg(CONFIG_SUNRPC_BACKCHANNEL)]
    return enqueue(owner, slot, xid, call);
    #[cfg(not(CONFIG_SUNRPC_BACKCHANNEL))]
    {
        let _ = (owner, xid, call);
        Err((slot, crate::kext::errno::EOPNOTSUPP))
    }
}

/// [`enqueue_bc_call`] where the kernel has reverse-direction services.
#[cfg(CONFIG_SUNRPC_BACKCHANNEL)]
fn enqueue<T: Transport>(
    owner: &Arc<T>,
    slot: Arc<Slot<T::Call>>,
    xid: u32,
    call: &[u8],
) -> Result<(), Refused<T>> {
    use crate::{
        kext::errno::EPROTO,
        sys, //
    };
    use kernel::page::PAGE_SIZE;

    if call.len() < MIN_CALL {
        return Err((slot, EPROTO));
    }
    let Some(rqst) = Slot::lend(slot.clone()) else {
        return Err((slot, EBUSY));
    };
    // SAFETY: The slot was just lent, and SUNRPC does not know it yet.
    let [(send, send_size), (receive, receive_size)] = unsafe { slot.buffers() };
    let len = match u32::try_from(call.len()) {
        Ok(len) if send_size >= PAGE_SIZE && call.len() <= receive_size => len,
        _ => {
            // SAFETY: The pointer comes from `lend`, and nobody got to see it.
            drop(unsafe { Slot::<T::Call>::take_back(rqst) });
            let error = if send_size < PAGE_SIZE { EINVAL } else { E2BIG };
            return Err((slot, error));
        }
    };
    let xprt = owner.xprt().as_ptr();

    // SAFETY: The slot was just lent, and SUNRPC does not know it yet: request and buffers are ours. `rqst` was
    // all zeros. The Call fits the receive buffer, which `call` is no part of.
    unsafe {
        core::ptr::copy_nonoverlapping(call.as_ptr(), receive, call.len());
        (*rqst).rq_xprt = xprt;
        (*rqst).rq_xid = xid.to_be();
        // The service copies both, and finds the end of the Call by `rq_private_buf`.
        sys::xdr_buf_init(&raw mut (*rqst).rq_snd_buf, send.cast(), PAGE_SIZE);
        sys::xdr_buf_init(&raw mut (*rqst).rq_rcv_buf, receive.cast(), call.len());
        (*rqst).rq_rcv_buf.len = len;
        (*rqst).rq_private_buf.len = len;
        // Tells `xprt_release` to give the request back by `bc_free_rqst`.
        (*rqst).rq_bc_pa_state = 1 << sys::RPC_BC_PA_IN_USE;
        // The service counts it down when it has taken the Call.
        sys::xprt_bc_slot_inc(xprt);
    }
    drop(slot);
    // SAFETY: The request is set up as the service expects it. The function takes a reference to the transport,
    // which `bc_free_rqst` gives back.
    unsafe { sys::xprt_enqueue_bc_request(rqst) };
    Ok(())
}
