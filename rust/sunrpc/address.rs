// SPDX-License-Identifier: GPL-2.0

//! The address of the server, as `sockaddr` and as strings.
//!
//! C headers: [`include/linux/sunrpc/addr.h`](srctree/include/linux/sunrpc/addr.h),
//! [`include/linux/sunrpc/xprt.h`](srctree/include/linux/sunrpc/xprt.h)

use crate::{
    kext::{
        errno::EAFNOSUPPORT,
        num, //
    },
    sys, //
};
use core::{
    marker::PhantomData,
    ptr, //
};
use kernel::{
    fmt,
    prelude::*,
    str::CString, //
};

/// A network namespace that lives at least as long as the transport it was taken from.
#[derive(Clone, Copy)]
pub(crate) struct Net<'a> {
    /// The C object.
    net: *mut sys::net,
    /// The transport holds a reference to it.
    _xprt: PhantomData<&'a ()>,
}

impl Net<'_> {
    /// Wraps a C object.
    ///
    /// # Safety
    ///
    /// Somebody holds a reference to `net` for the lifetime of the result.
    pub(crate) unsafe fn from_raw(net: *mut sys::net) -> Self {
        Self {
            net,
            _xprt: PhantomData,
        }
    }

    /// The C object.
    pub(crate) fn as_ptr(&self) -> *mut sys::net {
        self.net
    }
}

/// A copy of a socket address of a transport.
#[derive(Clone, Copy)]
pub(crate) struct SockAddr<'a> {
    /// The copy.
    storage: sys::__kernel_sockaddr_storage,
    /// A name for where it comes from.
    _xprt: PhantomData<&'a ()>,
}

impl SockAddr<'_> {
    /// Copies an address.
    ///
    /// # Safety
    ///
    /// `address` is valid for reads.
    pub(crate) unsafe fn copy(address: *const sys::__kernel_sockaddr_storage) -> Self {
        Self {
            // SAFETY: The caller guarantees it.
            storage: unsafe { address.read() },
            _xprt: PhantomData,
        }
    }

    /// Copies an address of `len` octets.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is longer than any address.
    ///
    /// # Safety
    ///
    /// `address` is valid for reads of `len` octets.
    pub(super) unsafe fn copy_octets(address: *const sys::sockaddr, len: c_int) -> Result<Self> {
        let len = usize::try_from(len)?;
        if len > core::mem::size_of::<sys::__kernel_sockaddr_storage>() {
            return Err(EINVAL);
        }
        let mut this = Self {
            storage: pin_init::zeroed(),
            _xprt: PhantomData,
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

    /// The address, for C functions.
    pub(crate) fn as_ptr(&self) -> *const sys::sockaddr {
        (&raw const self.storage).cast()
    }

    /// As text. A port that is not known yet is 0.
    pub(crate) fn text(&self) -> AddressText {
        let mut text = AddressText {
            address: [0; AddressText::MAX],
            port: [0; AddressText::MAX_PORT],
        };
        // One octet less than there is, so that the last one stays zero.
        // SAFETY: The storage is that of an address of some family, the buffer as long as it says.
        let port = unsafe {
            sys::rpc_ntop(
                self.as_ptr(),
                text.address.as_mut_ptr().cast(),
                AddressText::MAX - 1,
            );
            sys::rpc_get_port(self.as_ptr())
        };
        let mut left = port;
        let digits = port.checked_ilog10().map_or(1, |log| log as usize + 1);
        for digit in text.port.iter_mut().take(digits).rev() {
            *digit = b'0' + (left % 10) as u8;
            left /= 10;
        }
        text
    }

    /// Its address family.
    pub(super) fn family(&self) -> sys::__kernel_sa_family_t {
        // SAFETY: The family is the first member whichever variant is used.
        unsafe { self.storage.__bindgen_anon_1.__bindgen_anon_1.ss_family }
    }
}

/// The address strings of a transport, copied out of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct AddressText {
    /// Zero-padded.
    address: [u8; Self::MAX],
    /// Zero-padded.
    port: [u8; Self::MAX_PORT],
}

impl AddressText {
    /// An IPv6 address with a scope, and the final zero.
    const MAX: usize = 64;
    /// Five digits, and the final zero.
    const MAX_PORT: usize = 6;

    /// The text up to the first zero.
    fn text(bytes: &[u8]) -> &str {
        let len = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        let text = bytes.get(..len).unwrap_or(&[]);
        core::str::from_utf8(text).unwrap_or("?")
    }

    /// The presentation address of the server.
    pub(crate) fn address(&self) -> &str {
        Self::text(&self.address)
    }

    /// Its port.
    pub(crate) fn port(&self) -> &str {
        Self::text(&self.port)
    }

    /// The presentation address of the server, for C.
    pub(crate) fn address_c(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.address).unwrap_or(c"?")
    }

    /// Its port, for C.
    pub(crate) fn port_c(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.port).unwrap_or(c"?")
    }

    /// Copies the strings of a transport.
    ///
    /// # Safety
    ///
    /// `xprt` is a valid transport whose strings were set by [`set_address`].
    pub(super) unsafe fn of(xprt: *const sys::rpc_xprt) -> Self {
        let mut this = Self {
            address: [0; Self::MAX],
            port: [0; Self::MAX_PORT],
        };
        // SAFETY: No preconditions. An administrator may replace the address string at any time; the
        // old one lives until the end of an RCU grace period.
        unsafe { sys::rcu_read_lock() };
        for (string, to) in [
            (DISPLAY_ADDR, &mut this.address[..]),
            (DISPLAY_PORT, &mut this.port[..]),
        ] {
            // SAFETY: The transport is valid and the index within its table.
            let from = unsafe { ptr::read_volatile(string_of(xprt.cast_mut(), string)) };
            if from.is_null() {
                continue;
            }
            let room = to.len().saturating_sub(1);
            for (at, to) in to.iter_mut().take(room).enumerate() {
                // SAFETY: No octet before this one was the final zero.
                let byte = unsafe { from.add(at).cast::<u8>().read() };
                if byte == 0 {
                    break;
                }
                *to = byte;
            }
        }
        // SAFETY: Matches the call above.
        unsafe { sys::rcu_read_unlock() };
        this
    }
}

impl fmt::Display for AddressText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} port {}", self.address(), self.port())
    }
}

/// Indexes into the table of address strings.
const DISPLAY_ADDR: usize = num::u32_as_usize(sys::rpc_display_format_t_RPC_DISPLAY_ADDR);
const DISPLAY_PORT: usize = num::u32_as_usize(sys::rpc_display_format_t_RPC_DISPLAY_PORT);
const DISPLAY_PROTO: usize = num::u32_as_usize(sys::rpc_display_format_t_RPC_DISPLAY_PROTO);
const DISPLAY_HEX_ADDR: usize = num::u32_as_usize(sys::rpc_display_format_t_RPC_DISPLAY_HEX_ADDR);
const DISPLAY_HEX_PORT: usize = num::u32_as_usize(sys::rpc_display_format_t_RPC_DISPLAY_HEX_PORT);
const DISPLAY_NETID: usize = num::u32_as_usize(sys::rpc_display_format_t_RPC_DISPLAY_NETID);

/// The place of an address string.
///
/// # Safety
///
/// `xprt` is valid, and `index` one of the constants above.
unsafe fn string_of(xprt: *mut sys::rpc_xprt, index: usize) -> *mut *const c_char {
    // SAFETY: The caller guarantees it.
    unsafe {
        (&raw mut (*xprt).address_strings)
            .cast::<*const c_char>()
            .add(index)
    }
}

/// Writes text into an array of the transport's, and a final zero. What does not fit is cut off.
///
/// The array is not moved or freed before the transport: who reads it meanwhile finds the old text,
/// the new one, or something of both.
///
/// # Safety
///
/// `to` is valid for writes of `N` octets.
unsafe fn put<const N: usize>(to: *mut [c_char; N], text: &[u8]) {
    let to = to.cast::<u8>();
    let len = text.len().min(N - 1);
    // SAFETY: `len` is below `N`.
    unsafe {
        ptr::copy_nonoverlapping(text.as_ptr(), to, len);
        to.add(len).write(0);
    }
}

/// Sets the address of a new transport, and the strings that are made of it.
///
/// # Errors
///
/// `EAFNOSUPPORT` unless it is IPv4 or IPv6, `ENOMEM`.
///
/// # Safety
///
/// `rx` is valid, and known to nobody else; `from` is valid for reads of `len` octets, and `len` is at most
/// the size of a `sockaddr_storage`.
pub(super) unsafe fn set_address(
    rx: *mut sys::rpcrdma_xprt,
    from: *const sys::sockaddr,
    len: usize,
) -> Result {
    // SAFETY: The caller guarantees it.
    let xprt = unsafe { &raw mut (*rx).xprt };
    // SAFETY: The caller guarantees it; the target is a `sockaddr_storage`.
    unsafe {
        ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut (*xprt).addr).cast::<u8>(), len);
        (*xprt).addrlen = len;
    }
    // SAFETY: The address was just copied there.
    let address = unsafe { SockAddr::copy(&raw const (*xprt).addr) };
    let (netid, hex) = match u32::from(address.family()) {
        sys::AF_INET => (c"rdma", hex4(&address)?),
        sys::AF_INET6 => (c"rdma6", hex6(&address)?),
        _ => return Err(EAFNOSUPPORT),
    };

    let mut text = [0; AddressText::MAX];
    // SAFETY: The address is an IPv4 or IPv6 one; the buffer is as long as it says.
    let text_len = unsafe { sys::rpc_ntop(address.as_ptr(), text.as_mut_ptr(), text.len()) };
    if text_len == 0 {
        return Err(EINVAL);
    }
    // SAFETY: `rpc_ntop` has put a final zero there. The string is allocated, because whoever changes the
    // address by sysfs frees the old one.
    let text = unsafe { sys::kstrdup(text.as_ptr(), sys::GFP_KERNEL) };
    if text.is_null() {
        return Err(ENOMEM);
    }

    // SAFETY: The transport is valid and nobody else knows it; the strings live as long as it does.
    unsafe {
        put(&raw mut (*rx).hex_addr, hex.to_bytes());
        *string_of(xprt, DISPLAY_ADDR) = text;
        *string_of(xprt, DISPLAY_HEX_ADDR) = (&raw const (*rx).hex_addr).cast();
        *string_of(xprt, DISPLAY_PORT) = (&raw const (*rx).port).cast();
        *string_of(xprt, DISPLAY_HEX_PORT) = (&raw const (*rx).hex_port).cast();
        *string_of(xprt, DISPLAY_PROTO) = c"rdma".as_char_ptr();
        *string_of(xprt, DISPLAY_NETID) = netid.as_char_ptr();
        let port = sys::rpc_get_port(address.as_ptr());
        put_port(rx, port)?;
        if port != 0 {
            sys::xprt_set_bound(xprt);
        }
    }
    Ok(())
}

/// The hexadecimal form of an IPv4 address.
fn hex4(address: &SockAddr<'_>) -> Result<CString> {
    // SAFETY: The family says that it is one; a `sockaddr_storage` is large enough.
    let octets = unsafe {
        (*address.as_ptr().cast::<sys::sockaddr_in>())
            .sin_addr
            .s_addr
    };
    CString::try_from_fmt(fmt!("{:08x}", u32::from_be(octets)))
}

/// The hexadecimal form of an IPv6 address.
fn hex6(address: &SockAddr<'_>) -> Result<CString> {
    // SAFETY: As for `hex4`.
    let octets = unsafe {
        (*address.as_ptr().cast::<sys::sockaddr_in6>())
            .sin6_addr
            .in6_u
            .u6_addr8
    };
    CString::try_from_fmt(fmt!("{:032x}", u128::from_be_bytes(octets)))
}

/// Writes the port strings.
///
/// # Errors
///
/// `ENOMEM`.
///
/// # Safety
///
/// `rx` is valid, and the caller is the only one to set the port.
unsafe fn put_port(rx: *mut sys::rpcrdma_xprt, port: u16) -> Result {
    let (dec, hex) = (
        CString::try_from_fmt(fmt!("{port}"))?,
        CString::try_from_fmt(fmt!("{port:4x}"))?,
    );
    // SAFETY: The caller guarantees it.
    unsafe {
        put(&raw mut (*rx).port, dec.to_bytes());
        put(&raw mut (*rx).hex_port, hex.to_bytes());
    }
    Ok(())
}

/// Sets the port that rpcbind has found.
///
/// # Safety
///
/// `rx` is valid, and SUNRPC calls for it (one port lookup at a time).
pub(super) unsafe fn set_port(rx: *mut sys::rpcrdma_xprt, port: u16) {
    // SAFETY: The transport is valid. The strings are for people; without memory they keep the old port.
    unsafe {
        sys::rpc_set_port((&raw mut (*rx).xprt.addr).cast(), port);
        let _ = put_port(rx, port);
    }
}

/// Frees what [`set_address`] allocated.
///
/// # Safety
///
/// `rx` is valid, and nobody uses its strings any more.
pub(super) unsafe fn free_strings(rx: *mut sys::rpcrdma_xprt) {
    // SAFETY: The caller guarantees it. The string comes from `kstrdup`, here or in sysfs.
    unsafe {
        let string = string_of(&raw mut (*rx).xprt, DISPLAY_ADDR);
        sys::kfree((*string).cast());
        *string = ptr::null();
    }
}
