// SPDX-License-Identifier: GPL-2.0

//! The chunk lists.

use crate::proto::{
    chunk::{
        self,
        Chunk,
        Limits,
        ReadList,
        ReadSegment,
        Segment,
        WriteList, //
    },
    error::Result,
    xdr::{
        Reader,
        Writer, //
    }, //
};

/// Writes to a buffer that is large enough for whatever `len` octets can mean.
pub(super) fn written(len: usize, write: impl FnOnce(&mut Writer<'_>) -> Result) -> Vec<u8> {
    let mut buf = vec![0; len + 64];
    let mut writer = Writer::new(&mut buf);
    write(&mut writer).expect("what was decoded can be encoded");
    let len = writer.len();
    buf.truncate(len);
    buf
}

/// Checks that counts and totals are those of what the iterators yield.
pub(super) fn check_totals(read: &ReadList<'_>, write: &WriteList<'_>, reply: Option<&Chunk<'_>>) {
    let sum = |segments: &mut dyn Iterator<Item = Segment>| -> u64 {
        segments.map(|segment| u64::from(segment.length)).sum()
    };
    let limits = Limits::DEFAULT;

    assert_eq!(read.is_empty(), read.iter().next().is_none());
    assert!(read.iter().count() <= limits.read_segments);
    assert!(read.iter().all(|entry| entry.position % 4 == 0));
    assert_eq!(
        sum(&mut read.iter().map(|entry| entry.segment)),
        u64::from(read.total())
    );

    assert_eq!(write.iter().count(), write.len());
    assert_eq!(write.is_empty(), write.iter().next().is_none());
    assert!(write.len() <= limits.write_chunks);
    assert_eq!(write.single().is_some(), write.len() == 1);

    for chunk in write.iter().chain(reply.copied()) {
        let segments: Vec<Segment> = chunk.iter().collect();
        assert_eq!(segments.len(), chunk.len());
        assert!(chunk.len() <= limits.chunk_segments);
        assert_eq!(sum(&mut chunk.iter()), u64::from(chunk.total()));
        // A chunk that comes back as it was offered was filled.
        assert_eq!(
            chunk.check_returned(segments.iter().copied()),
            Ok(chunk.total())
        );
        for segment in segments {
            assert!(segment
                .offset
                .checked_add(u64::from(segment.length))
                .is_some());
        }
    }
}

/// The chunk lists, one at a time and with small limits.
pub fn chunk_lists(bytes: &[u8]) {
    let limits = Limits {
        read_segments: 3,
        write_chunks: 2,
        chunk_segments: 2,
    };

    let mut reader = Reader::new(bytes);
    if let Ok(list) = ReadList::get(&mut reader, &limits) {
        check_totals(&list, &WriteList::default(), None);
        let segments: Vec<ReadSegment> = list.iter().collect();
        assert!(segments.len() <= limits.read_segments);
        let again = written(bytes.len(), |w| chunk::put_read_list(w, &[], &segments));
        assert_eq!(again, bytes[..reader.position()]);
    }

    let mut reader = Reader::new(bytes);
    if let Ok(list) = WriteList::get(&mut reader, &limits) {
        assert!(list.len() <= limits.write_chunks);
        check_totals(&ReadList::default(), &list, None);
        let chunks: Vec<Vec<Segment>> = list.iter().map(|c| c.iter().collect()).collect();
        let chunks: Vec<&[Segment]> = chunks.iter().map(Vec::as_slice).collect();
        let again = written(bytes.len(), |w| chunk::put_write_list(w, &chunks));
        assert_eq!(again, bytes[..reader.position()]);
    }

    let mut reader = Reader::new(bytes);
    if let Ok(chunk) = Chunk::get(&mut reader, &limits) {
        assert!(chunk.len() <= limits.chunk_segments);
        check_totals(&ReadList::default(), &WriteList::default(), Some(&chunk));
        let segments: Vec<Segment> = chunk.iter().collect();
        let again = written(bytes.len(), |w| chunk::put_chunk(w, &segments));
        assert_eq!(again, bytes[..reader.position()]);

        // What the rest of the bytes says came back must be accepted only if it was offered.
        if let Ok(returned) = Chunk::get(&mut reader, &limits) {
            if let Ok(len) = returned.check_returned(segments.iter().copied()) {
                assert_eq!(len, returned.total());
                assert!(len <= chunk.total());
                assert!(returned.iter().zip(&segments).all(|(returned, offered)| {
                    returned.length <= offered.length
                        && returned.handle == offered.handle
                        && returned.offset == offered.offset
                }));
                // The octets that came are the first ones of the chunk.
                let mut left = len;
                for (returned, offered) in returned.iter().zip(&segments) {
                    assert_eq!(returned.length, left.min(offered.length));
                    left -= returned.length;
                }
            }
        }
    }
}
