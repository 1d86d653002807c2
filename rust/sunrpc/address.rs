// SPDX-License-Identifier: GPL-2.0

//! Socket addresses of transports as text, and the address strings of a client's transport.
//!
//! C headers: [`include/linux/sunrpc/addr.h`](srctree/include/linux/sunrpc/addr.h),
//! [`include/linux/sunrpc/xprt.h`](srctree/include/linux/sunrpc/xprt.h)

use crate::kext::prelude::*;
use crate::{
    kext::{
        net::SockAddr,
        num, //
    },
    sys, //
};
use core::ptr;
use kernel::{
    fmt,
    str::CString,
    sync::rcu, //
};

impl SockAddr<'_> {
    /// Returns the address as text. A port that is not known yet is 0.
    pub(crate) fn text(&self) -> AddressText {
        let mut text = AddressText {
            address: [0; AddressText::MAX],
            port: [0; AddressText::MAX_PORT],
        };
        // Its last octet stays zero: `rpc_ntop` is told of one octet less.
        // SAFETY: The storage holds an address of some family. The buffer is longer than the length
        // passed.
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
}

/// The address strings of a transport, copied out of it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct AddressText {
    /// The text, padded with zeros.
    address: [u8; Self::MAX],
    /// The text, padded with zeros.
    port: [u8; Self::MAX_PORT],
}

impl AddressText {
    /// Room for an IPv6 address with a scope, and the final zero.
    const MAX: usize = 64;
    /// Room for five digits, and the final zero.
    const MAX_PORT: usize = 6;

    /// Makes one of several addresses with one of several ports, for tests.
    #[cfg(rpcrdma_kunit)]
    pub(crate) fn numbered(address: u8, port: u8) -> Self {
        Self {
            address: [address; Self::MAX],
            port: [port; Self::MAX_PORT],
        }
    }

    /// Returns the text up to the first zero.
    fn text(bytes: &[u8]) -> &str {
        let len = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
        let text = bytes.get(..len).unwrap_or(&[]);
        core::str::from_utf8(text).unwrap_or("?")
    }

    /// Returns the presentation address of the server.
    pub(crate) fn address(&self) -> &str {
        Self::text(&self.address)
    }

    /// Returns the port of the server.
    pub(crate) fn port(&self) -> &str {
        Self::text(&self.port)
    }

    /// Returns the presentation address of the server, for C.
    pub(crate) fn address_c(&self) -> &CStr {
        CStr::from_bytes_until_nul(&self.address).unwrap_or(c"?")
    }

    /// Returns the port of the server, for C.
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
        let guard = rcu::read_lock();
        for (string, to) in [
            (DISPLAY_ADDR, &mut this.address[..]),
            (DISPLAY_PORT, &mut this.port[..]),
        ] {
            // SAFETY: The transport is valid and the index within its table. An administrator may
            // replace the address string at any time, so it is read as one volatile word; the old
            // string lives until the end of an RCU grace period, which this read-side critical
            // section delays.
            let from = unsafe { ptr::read_volatile(string_of(xprt.cast_mut(), string)) };
            if from.is_null() {
                continue;
            }
            let room = to.len().saturating_sub(1);
            for (at, to) in to.iter_mut().take(room).enumerate() {
                // SAFETY: No octet before this one was the final zero, so this one belongs to the
                // string too.
                let byte = unsafe { from.add(at).cast::<u8>().read_volatile() };
                if byte == 0 {
                    break;
                }
                *to = byte;
            }
        }
        drop(guard);
        this
    }
}

impl fmt::Display for AddressText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} port {}", self.address(), self.port())
    }
}

/// Index of the presentation address in the table of address strings. The indexes of the others
/// follow.
const DISPLAY_ADDR: usize = num::u32_as_usize(sys::rpc_display_format_t_RPC_DISPLAY_ADDR);
const DISPLAY_PORT: usize = num::u32_as_usize(sys::rpc_display_format_t_RPC_DISPLAY_PORT);
const DISPLAY_PROTO: usize = num::u32_as_usize(sys::rpc_display_format_t_RPC_DISPLAY_PROTO);
const DISPLAY_HEX_ADDR: usize = num::u32_as_usize(sys::rpc_display_format_t_RPC_DISPLAY_HEX_ADDR);
const DISPLAY_HEX_PORT: usize = num::u32_as_usize(sys::rpc_display_format_t_RPC_DISPLAY_HEX_PORT);
const DISPLAY_NETID: usize = num::u32_as_usize(sys::rpc_display_format_t_RPC_DISPLAY_NETID);

/// Returns the place of an address string.
///
/// # Safety
///
/// `xprt` is valid, and `index` one of the constants above.
unsafe fn string_of(xprt: *mut sys::rpc_xprt, index: usize) -> *mut *const c_char {
    // SAFETY: The caller guarantees that `xprt` is valid and `index` is within the table.
    unsafe {
        (&raw mut (*xprt).address_strings)
            .cast::<*const c_char>()
            .add(index)
    }
}

/// Writes text and a final zero into an array of the transport. Text that does not fit is cut off.
///
/// The array is neither moved nor freed before the transport. A concurrent reader finds the old
/// text, the new text, or a mixture. So each octet is written, and read, by itself.
///
/// # Safety
///
/// `to` is valid for writes of `N` octets.
unsafe fn put<const N: usize>(to: *mut [c_char; N], text: &[u8]) {
    let to = to.cast::<u8>();
    let len = text.len().min(N - 1);
    for (at, byte) in text.iter().take(len).enumerate() {
        // SAFETY: `at` is below `len`, and `len` is below `N`, so the octet is within the array,
        // which the caller guarantees to be valid for writes.
        unsafe { to.add(at).write_volatile(*byte) };
    }
    // SAFETY: `len` is below `N`, so the octet is within the array, too.
    unsafe { to.add(len).write_volatile(0) };
}

/// Sets the address of a new transport, and the strings made from it.
///
/// # Errors
///
/// `EAFNOSUPPORT` unless the address is an IPv4 or IPv6 one, `EINVAL` if it has no text, `ENOMEM`.
///
/// # Safety
///
/// `rx` is valid, and no other thread knows it. `from` is valid for reads of `len` octets, and
/// `len` is at most the size of a `sockaddr_storage`.
pub(super) unsafe fn set_address(
    rx: *mut sys::rpcrdma_xprt,
    from: *const sys::sockaddr,
    len: usize,
) -> Result {
    // SAFETY: The caller guarantees that `rx` is valid; no reference is made.
    let xprt = unsafe { &raw mut (*rx).xprt };
    // SAFETY: The caller guarantees `len` octets of source, which fit into a `sockaddr_storage`.
    unsafe {
        ptr::copy_nonoverlapping(from.cast::<u8>(), (&raw mut (*xprt).addr).cast::<u8>(), len);
        (*xprt).addrlen = len;
    }
    // SAFETY: The field is part of a valid transport, and the address was just copied into it.
    let address = unsafe { SockAddr::copy(&raw const (*xprt).addr) };
    let (netid, hex) = match u32::from(address.family()) {
        sys::AF_INET => (
            c"rdma",
            CString::try_from_fmt(fmt!("{:08x}", address.ipv4()))?,
        ),
        sys::AF_INET6 => (
            c"rdma6",
            CString::try_from_fmt(fmt!("{:032x}", address.ipv6()))?,
        ),
        _ => return Err(EAFNOSUPPORT),
    };

    let mut text = [0; AddressText::MAX];
    // SAFETY: The address is an IPv4 or IPv6 one; the buffer has the length passed.
    let text_len = unsafe { sys::rpc_ntop(address.as_ptr(), text.as_mut_ptr(), text.len()) };
    if text_len == 0 {
        return Err(EINVAL);
    }
    // SAFETY: `rpc_ntop` has put a final zero there. The string is allocated, because a change of
    // the address by sysfs frees the old one.
    let text = unsafe { sys::kstrdup(text.as_ptr(), sys::GFP_KERNEL) };
    if text.is_null() {
        return Err(ENOMEM);
    }

    // SAFETY: The transport is valid and no other thread knows it. The strings live as long as it
    // does: they are static, its own fields, or (`text`) freed with it by `free_strings`.
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
    // SAFETY: The caller guarantees that `rx` is valid, and that it alone sets the port.
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
    // SAFETY: The caller guarantees that the transport is valid, and SUNRPC makes one lookup at a
    // time, so no other thread sets the port. The strings are for display only; without memory they
    // keep the old port.
    unsafe {
        sys::rpc_set_port((&raw mut (*rx).xprt.addr).cast(), port);
        let _ = put_port(rx, port);
    }
}

/// Frees what [`set_address`] allocated.
///
/// # Safety
///
/// `rx` is valid, and its strings are not used any more.
pub(super) unsafe fn free_strings(rx: *mut sys::rpcrdma_xprt) {
    // SAFETY: The caller guarantees that `rx` is valid, and its strings are not used any more. This
    // one comes from `kstrdup`, here or in sysfs, or is null.
    unsafe {
        let string = string_of(&raw mut (*rx).xprt, DISPLAY_ADDR);
        sys::kfree((*string).cast());
        *string = ptr::null();
    }
}
