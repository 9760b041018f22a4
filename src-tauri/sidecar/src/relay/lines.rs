//! Lines of bytes with a bound on their length. Knows nothing of what they say.

use std::io;

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

/// Bytes read at once. A warm request and its reply fit; longer lines take more turns.
const READ_BYTES: usize = 32 * 1024;

/// The lines of `R`. A line that is longer than the bound is dropped and told in the log, which is
/// what the bridge itself does with it.
pub(super) struct Lines<R> {
    read: BufReader<R>,
    line: Vec<u8>,
    bytes_max: usize,
    /// `line` is whole and not yet taken.
    whole: bool,
    /// The rest of the line under way is dropped.
    too_long: bool,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(read: R, bytes_max: usize) -> Self {
        Self {
            read: BufReader::with_capacity(READ_BYTES, read),
            line: Vec::new(),
            bytes_max,
            whole: false,
            too_long: false,
        }
    }

    /// The next line with its line end; `None` at the end, where half a line counts as none. May be
    /// dropped and called again.
    pub(super) async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        if !self.fill().await? {
            return Ok(None);
        }
        self.whole = false;
        Ok(Some(std::mem::take(&mut self.line)))
    }

    /// Returns when there is no further line; for ever pending while one waits to be taken.
    pub(super) async fn ended(&mut self) {
        if let Ok(true) = self.fill().await {
            std::future::pending::<()>().await;
        }
    }

    /// Have a whole line; false at the end.
    async fn fill(&mut self) -> io::Result<bool> {
        while !self.whole {
            let read = self.read.fill_buf().await?;
            if read.is_empty() {
                return Ok(false);
            }
            let end = read.iter().position(|byte| *byte == b'\n');
            let taken = end.map_or(read.len(), |end| end + 1);
            if !self.too_long && self.line.len() + taken > self.bytes_max {
                self.too_long = true;
                self.line = Vec::new();
            }
            if !self.too_long {
                self.line.extend_from_slice(&read[..taken]);
            }
            self.read.consume(taken);
            if end.is_some() {
                if self.too_long {
                    tracing::error!("a line of more than {} bytes was dropped", self.bytes_max);
                } else {
                    self.whole = true;
                }
                self.too_long = false;
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

    use super::*;

    #[tokio::test]
    async fn lines_come_whole_and_long_ones_not_at_all() {
        let text = [
            b"one\n".as_slice(),
            &vec![b'x'; 100_000],
            b"\n\ntwo\r\n1234567\n12345678\nhalf",
        ]
        .concat();
        // In pieces of seven bytes, so that no line is lucky.
        let (mut write, read) = tokio::io::duplex(7);
        let writing = tokio::spawn(async move {
            tokio::io::AsyncWriteExt::write_all(&mut write, &text)
                .await
                .unwrap();
        });
        let mut lines = Lines::new(read, 8);
        for expected in ["one\n", "\n", "two\r\n", "1234567\n"] {
            assert_eq!(lines.next().await.unwrap().unwrap(), expected.as_bytes());
        }
        assert_eq!(lines.next().await.unwrap(), None);
        writing.await.unwrap();
    }

    #[tokio::test]
    async fn the_end_is_noticed_only_when_nothing_waits() {
        let mut waiting = Lines::new(&b"line\n"[..], 100);
        let patience = std::time::Duration::from_millis(20);
        tokio::time::timeout(patience, waiting.ended())
            .await
            .unwrap_err();
        assert_eq!(waiting.next().await.unwrap().unwrap(), b"line\n");
        waiting.ended().await;
    }
}
