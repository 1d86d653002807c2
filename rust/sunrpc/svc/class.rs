// SPDX-License-Identifier: GPL-2.0

//! The classes of the server's transports.

use super::ops::{
    ListenOps,
    ListenTransport, //
};
use crate::kext::prelude::*;
use crate::{
    sunrpc::{
        class::callback_setup_callback,
        transport::CallbackTransport, //
    },
    sys, //
};

/// The registration of the server's transport classes. Listeners are `L`s, and transports for Calls
/// to clients are `C`s. Dropped, it is undone.
pub(crate) struct ServerClassRegistration<L, C>(PhantomData<fn() -> (L, C)>)
where
    L: ListenTransport,
    C: CallbackTransport<Connection = L::Connection>;

impl<L, C> ServerClassRegistration<L, C>
where
    L: ListenTransport,
    C: CallbackTransport<Connection = L::Connection>,
{
    /// Registers the classes.
    ///
    /// # Errors
    ///
    /// `EEXIST` if the kernel has another transport of this kind.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: The table is static, the function is a setup operation, and `Drop` unregisters
        // the classes before the module goes.
        to_result(unsafe {
            sys::rpcrdma_class_server_register(
                ListenOps::<L>::TABLE,
                Some(callback_setup_callback::<C>),
            )
        })?;
        Ok(Self(PhantomData))
    }
}

impl<L, C> Drop for ServerClassRegistration<L, C>
where
    L: ListenTransport,
    C: CallbackTransport<Connection = L::Connection>,
{
    fn drop(&mut self) {
        // SAFETY: `new` registered them. No transport is left, since each holds a reference to the
        // module.
        unsafe { sys::rpcrdma_class_server_unregister() }
    }
}
