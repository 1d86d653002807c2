// SPDX-License-Identifier: GPL-2.0

//! Reverse-direction Calls, from the server to a service on the client.
//!
//! C header: [`include/linux/sunrpc/bc_xprt.h`](srctree/include/linux/sunrpc/bc_xprt.h)

use super::{
    slot::Slot,
    transport::Transport, //
};

use crate::kext::prelude::*;

/// Octets of XID and direction, which the service needs to answer a Call.
#[cfg(CONFIG_SUNRPC_BACKCHANNEL)]
const MIN_CALL: usize = 8;

/// A slot that was not lent, and the reason.
pub(crate) type Refused<T> = (Arc<Slot<<T as Transport>::Call>>, Error);

/// Gives a reverse-direction Call to the service on the client.
///
/// `len` is the length of the RPC message, `xid` its XID in host order. `fill` copies the whole
/// message into the slice passed to it, or returns [`None`]; nothing fails after it has succeeded.
///
/// The slot comes back by [`Transport::bc_free_rqst`], after the Reply was sent, or at once if
/// there is no service. If the service replies to the Call, its Reply comes by
/// [`Transport::send_bc_reply`].
///
/// # Errors
///
/// The slot is given back with the error: `EPROTO` if this is no Call or `fill` fails, `ENOMEM`,
/// `EINVAL` if the slot was not made by [`Slot::new_bc`], `EBUSY` if it is in use, `EOPNOTSUPP` if
/// the kernel has no such services.
pub(crate) fn enqueue_bc_call<T: Transport>(
    owner: &Arc<T>,
    slot: Arc<Slot<T::Call>>,
    xid: u32,
    len: usize,
    fill: impl FnOnce(&mut [u8]) -> Option<()>,
) -> Result<(), Refused<T>> {
    #[cfg(CONFIG_SUNRPC_BACKCHANNEL)]
    return enqueue(owner, slot, xid, len, fill);
    #[cfg(not(CONFIG_SUNRPC_BACKCHANNEL))]
    {
        let _ = (owner, xid, len, fill);
        Err((slot, crate::kext::errno::EOPNOTSUPP))
    }
}

/// Implements [`enqueue_bc_call`] where the kernel has reverse-direction services.
#[cfg(CONFIG_SUNRPC_BACKCHANNEL)]
fn enqueue<T: Transport>(
    owner: &Arc<T>,
    slot: Arc<Slot<T::Call>>,
    xid: u32,
    len: usize,
    fill: impl FnOnce(&mut [u8]) -> Option<()>,
) -> Result<(), Refused<T>> {
    use crate::{
        kext::errno::EPROTO,
        sys, //
    };
    use kernel::page::PAGE_SIZE;

    if len < MIN_CALL {
        return Err((slot, EPROTO));
    }
    let Some(rqst) = Slot::lend(slot.clone()) else {
        return Err((slot, EBUSY));
    };
    // SAFETY: The slot was just lent to this function, and SUNRPC does not know it yet, so nothing
    // else uses its buffers.
    let copied = unsafe { slot.ensure_receive(len) }.and_then(|()| {
        // SAFETY: SUNRPC does not know the slot yet, so nothing else changes its buffers.
        let [(send, send_size), (receive, _)] = unsafe { slot.buffers() };
        if send_size < PAGE_SIZE {
            return Err(EINVAL);
        }
        // SAFETY: `ensure_receive` has made the buffer `len` octets long or longer. They are
        // initialised, as buffers are zeroed, and nothing else uses them before SUNRPC knows the
        // slot.
        let place = unsafe { core::slice::from_raw_parts_mut(receive, len) };
        fill(place).ok_or(EPROTO)?;
        Ok((send, receive, u32::try_from(len)?))
    });
    let (send, receive, octets) = match copied {
        Ok(copied) => copied,
        Err(error) => {
            // SAFETY: The pointer comes from `lend` of this slot, and no other code has seen it.
            drop(unsafe { Slot::<T::Call>::take_back(rqst) });
            return Err((slot, error));
        }
    };
    let xprt = owner.xprt().as_ptr();

    // SAFETY: The slot was just lent, and SUNRPC does not know it yet: request and buffers are
    // ours. `rqst` was all zeros. The Call is in the receive buffer.
    unsafe {
        (*rqst).rq_xprt = xprt;
        (*rqst).rq_xid = xid.to_be();
        // The service copies both, and finds the end of the Call by `rq_private_buf`.
        sys::xdr_buf_init(&raw mut (*rqst).rq_snd_buf, send.cast(), PAGE_SIZE);
        sys::xdr_buf_init(&raw mut (*rqst).rq_rcv_buf, receive.cast(), len);
        (*rqst).rq_rcv_buf.len = octets;
        (*rqst).rq_private_buf.len = octets;
        // Tells `xprt_release` to give the request back by `bc_free_rqst`.
        (*rqst).rq_bc_pa_state = 1 << sys::RPC_BC_PA_IN_USE;
        // The service counts it down when it has taken the Call.
        sys::xprt_bc_slot_inc(xprt);
    }
    drop(slot);
    // SAFETY: The request is set up as the service expects it. The function takes a reference to
    // the transport, which `bc_free_rqst` gives back.
    unsafe { sys::xprt_enqueue_bc_request(rqst) };
    Ok(())
}
