// SPDX-License-Identifier: GPL-2.0

//! Where a checked list is in its message, for owners of messages that come back to it.

/// The place of a checked list, with what was counted when it was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place<F> {
    /// The offset in the message.
    at: usize,
    /// The length in octets.
    len: usize,
    /// The number of chunks, or of octets in all segments.
    pub(super) figure: F,
}

impl<F> Place<F> {
    /// The place of `list`, which is a part of `message` or empty.
    pub(super) fn of(list: &[u8], message: &[u8], figure: F) -> Self {
        let at = list.as_ptr().addr().wrapping_sub(message.as_ptr().addr());
        Self {
            at: if list.is_empty() { 0 } else { at },
            len: list.len(),
            figure,
        }
    }

    /// Returns the list in the message that it was found in.
    pub(super) fn list<'a>(&self, message: &'a [u8]) -> &'a [u8] {
        let rest = message.get(self.at..).unwrap_or(&[]);
        rest.get(..self.len).unwrap_or(&[])
    }
}
