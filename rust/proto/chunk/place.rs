// SPDX-License-Identifier: GPL-2.0

//! Where a checked list is in its message, for owners of messages that come back to it.

/// The place of a checked list, with what was counted when it was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place<F> {
    /// The offset in the message.
    at: u32,
    /// The length in octets.
    len: u32,
    /// The number of chunks, or of octets in all segments.
    pub(super) figure: F,
}

impl<F> Place<F> {
    /// The place of `list`, which is a part of `message` or empty.
    #[inline]
    pub(super) fn of(list: &[u8], message: &[u8], figure: F) -> Self {
        let at = list.as_ptr().addr().wrapping_sub(message.as_ptr().addr());
        let at = if list.is_empty() { 0 } else { at };
        Self {
            at: u32::try_from(at).unwrap_or(u32::MAX),
            len: u32::try_from(list.len()).unwrap_or(u32::MAX),
            figure,
        }
    }

    /// Returns the list in the message that it was found in.
    #[inline]
    pub(super) fn list<'a>(&self, message: &'a [u8]) -> &'a [u8] {
        let usize_of = |value| usize::try_from(value).unwrap_or(usize::MAX);
        let rest = message.get(usize_of(self.at)..).unwrap_or(&[]);
        rest.get(..usize_of(self.len)).unwrap_or(&[])
    }
}
