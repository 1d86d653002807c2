// SPDX-License-Identifier: GPL-2.0

//! Where a checked list is in its message.

/// The place of a checked list, with what was counted when it was checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Span {
    /// The offset in the message.
    at: u32,
    /// The length in octets.
    len: u32,
    /// The number of chunks of a Write list; of others the octets in all segments.
    pub(super) figure: u32,
}

impl Span {
    /// The place of a list of `len` octets that begins at `at`. That of an empty list is the same
    /// wherever it is.
    #[inline]
    pub(crate) fn new(at: usize, len: usize, figure: u32) -> Self {
        if len == 0 {
            return Self::default();
        }
        Self {
            at: u32::try_from(at).unwrap_or(u32::MAX),
            len: u32::try_from(len).unwrap_or(u32::MAX),
            figure,
        }
    }

    /// Returns whether the list is empty.
    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the list in the message that it was found in.
    #[inline]
    pub(super) fn list<'a>(&self, message: &'a [u8]) -> &'a [u8] {
        // Most lists are empty.
        if self.is_empty() {
            return &[];
        }
        let usize_of = |value| usize::try_from(value).unwrap_or(usize::MAX);
        let rest = message.get(usize_of(self.at)..).unwrap_or(&[]);
        rest.get(..usize_of(self.len)).unwrap_or(&[])
    }
}
