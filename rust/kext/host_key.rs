// SPDX-License-Identifier: GPL-2.0

//! The key of host authentication, which an administrator sets and C keeps, and the functions that
//! use it.
//!
//! C headers: [`include/crypto/sha2.h`](srctree/include/crypto/sha2.h),
//! [`include/crypto/utils.h`](srctree/include/crypto/utils.h),
//! [`include/linux/random.h`](srctree/include/linux/random.h); C file: `rust/sys/host_auth.c`

use crate::sys;

/// The length of a digest in octets.
pub(crate) const DIGEST_LEN: usize = 32;

/// Returns whether there is a key.
pub(crate) fn exists() -> bool {
    // SAFETY: No preconditions.
    unsafe { sys::rpcrdma_host_auth_has_key() }
}

/// Forgets the key.
pub(crate) fn forget() {
    // SAFETY: No preconditions.
    unsafe { sys::rpcrdma_host_auth_exit() };
}

/// Returns the HMAC-SHA256 of `data` with the key, or [`None`] if there is no key. Must not be
/// called in interrupt context.
pub(crate) fn mac(data: &[u8]) -> Option<[u8; DIGEST_LEN]> {
    let mut mac = [0; DIGEST_LEN];
    // SAFETY: The source is valid for reads of its length, the target for writes of the 32 octets
    // of a SHA-256 digest.
    let done = unsafe { sys::rpcrdma_host_auth_mac(data.as_ptr(), data.len(), mac.as_mut_ptr()) };
    done.then_some(mac)
}

/// Returns whether two digests are equal, in a time that does not depend on where they differ.
pub(crate) fn is_equal(one: &[u8; DIGEST_LEN], other: &[u8; DIGEST_LEN]) -> bool {
    // SAFETY: Both arrays are valid for reads of that length.
    let differ =
        unsafe { sys::crypto_memneq(one.as_ptr().cast(), other.as_ptr().cast(), DIGEST_LEN) };
    differ == 0
}

/// Returns octets that cannot be predicted. May be called from any context.
pub(crate) fn random<const N: usize>() -> [u8; N] {
    let mut octets = [0; N];
    // SAFETY: The array is valid for writes of its length.
    unsafe { sys::get_random_bytes(octets.as_mut_ptr().cast(), N) };
    octets
}

#[cfg(rpcrdma_kunit)]
#[kernel::macros::kunit_tests(rpcrdma_kext_host_key)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_compared_as_a_whole() {
        let one = [0x5a; DIGEST_LEN];
        assert!(is_equal(&one, &one));
        for at in 0..DIGEST_LEN {
            for bit in 0..8 {
                let mut other = one;
                other[at] ^= 1 << bit;
                assert!(!is_equal(&one, &other));
            }
        }
    }

    #[test]
    fn random_octets_differ() {
        assert_ne!(random::<32>(), random::<32>());
        assert_ne!(random::<32>(), [0; 32]);
    }
}
