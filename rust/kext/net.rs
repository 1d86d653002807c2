// SPDX-License-Identifier: GPL-2.0

//! Network namespaces and socket addresses.

use crate::kext::prelude::*;
use crate::sys;
use core::ptr;

/// A network namespace that lives at least as long as the object it was taken from.
#[derive(Clone, Copy)]
pub(crate) struct Net<'a> {
    /// The C object.
    net: *mut sys::net,
    /// Ties the lifetime to the object, which holds a reference to the namespace.
    _owner: PhantomData<&'a ()>,
}

impl Net<'_> {
    /// Wraps a C object.
    ///
    /// # Safety
    ///
    /// A reference to `net` is held for the lifetime of the result.
    pub(crate) unsafe fn from_raw(net: *mut sys::net) -> Self {
        Self {
            net,
            _owner: PhantomData,
        }
    }

    /// Returns the C object.
    pub(crate) fn as_ptr(&self) -> *mut sys::net {
        self.net
    }

    /// Returns whether this is the first namespace of the host, which lives as long as the host.
    pub(crate) fn is_first(&self) -> bool {
        // SAFETY: The namespace is valid, and the function only compares it.
        unsafe { sys::net_is_first(self.net) }
    }
}

/// A copy of a socket address.
#[derive(Clone, Copy)]
pub(crate) struct SockAddr<'a> {
    /// The copy.
    storage: sys::__kernel_sockaddr_storage,
    /// Ties the lifetime to the object that the address was taken from.
    _owner: PhantomData<&'a ()>,
}

impl SockAddr<'_> {
    /// Copies an address.
    ///
    /// # Safety
    ///
    /// `address` is valid for reads.
    pub(crate) unsafe fn copy(address: *const sys::__kernel_sockaddr_storage) -> Self {
        Self {
            // SAFETY: The caller guarantees that `address` is valid for reads.
            storage: unsafe { address.read() },
            _owner: PhantomData,
        }
    }

    /// Copies an address of `len` octets.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `len` is negative or larger than any address.
    ///
    /// # Safety
    ///
    /// `address` is valid for reads of `len` octets.
    pub(crate) unsafe fn copy_octets(address: *const sys::sockaddr, len: c_int) -> Result<Self> {
        let len = usize::try_from(len)?;
        if len > core::mem::size_of::<sys::__kernel_sockaddr_storage>() {
            return Err(EINVAL);
        }
        let mut this = Self {
            storage: pin_init::zeroed(),
            _owner: PhantomData,
        };
        // SAFETY: The caller guarantees the source; the target is large enough.
        unsafe {
            ptr::copy_nonoverlapping(
                address.cast::<u8>(),
                (&raw mut this.storage).cast::<u8>(),
                len,
            )
        };
        Ok(this)
    }

    /// Returns the address, for C functions.
    pub(crate) fn as_ptr(&self) -> *const sys::sockaddr {
        (&raw const self.storage).cast()
    }

    /// Returns the octets of an IPv4 address. Of another one the result means nothing.
    pub(crate) fn ipv4(&self) -> u32 {
        // SAFETY: The storage is larger than a `sockaddr_in` and aligned for it; any octets there
        // make valid integers.
        let octets = unsafe { (*self.as_ptr().cast::<sys::sockaddr_in>()).sin_addr.s_addr };
        u32::from_be(octets)
    }

    /// Returns the octets of an IPv6 address. Of another one the result means nothing.
    pub(crate) fn ipv6(&self) -> u128 {
        // SAFETY: The storage is larger than a `sockaddr_in6` and aligned for it; any octets there
        // make a valid array.
        let octets = unsafe {
            (*self.as_ptr().cast::<sys::sockaddr_in6>())
                .sin6_addr
                .in6_u
                .u6_addr8
        };
        u128::from_be_bytes(octets)
    }

    /// Returns the address family.
    pub(crate) fn family(&self) -> sys::__kernel_sa_family_t {
        // SAFETY: The family is the first member whichever variant is used.
        unsafe { self.storage.__bindgen_anon_1.__bindgen_anon_1.ss_family }
    }
}
