// SPDX-License-Identifier: GPL-2.0

//! The XDR reader and writer.

use crate::proto::xdr::{
    self,
    Reader,
    Writer, //
};

/// The XDR reader and writer: the first octet of each step chooses what to read.
pub fn xdr(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let mut buf = vec![0; bytes.len()];
    let mut writer = Writer::new(&mut buf);

    while let Ok([choice]) = reader.array::<1>() {
        writer.bytes(&[*choice]).unwrap();
        let before = reader.position();
        let rest = reader.rest();
        let max = usize::from(*choice);
        let outcome = match choice % 6 {
            0 => reader.u32().and_then(|value| writer.u32(value)),
            1 => reader.u64().and_then(|value| writer.u64(value)),
            2 => reader.bool().and_then(|value| writer.bool(value)),
            3 => reader.bytes(max).and_then(|value| writer.bytes(value)),
            4 => reader.opaque_fixed(max).and_then(|value| {
                assert_eq!(value.len(), max);
                writer.opaque_fixed(value)
            }),
            _ => reader.opaque(max).and_then(|value| {
                assert!(value.len() <= max);
                writer.opaque(value)
            }),
        };
        if outcome.is_err() {
            // Nothing was read, so nothing was written.
            assert_eq!(reader.position(), before);
            assert_eq!(reader.rest(), rest);
        }
        assert_eq!(
            reader.position() + reader.rest().len(),
            bytes.len(),
            "nothing gets lost"
        );
        let skipped = writer.len();
        assert!(skipped <= reader.position());
        if outcome.is_err() {
            break;
        }
        assert_eq!(writer.len(), reader.position());
    }
    for len in 0..8 {
        assert_eq!((len + xdr::pad_len(len)) % xdr::UNIT, 0);
    }
}
