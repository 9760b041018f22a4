//! An end of one direction, for pipes that can only be closed as a whole.
//!
//! The connection carries lines of JSON, in which one byte never stands: after it nothing comes. So the
//! other direction goes on, as it does on a socket, until what was asked is answered. Knows neither pipes
//! nor messages.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// ASCII's "end of transmission". JSON escapes it inside a string and has no place for it elsewhere.
pub(super) const END: u8 = 0x04;

/// Both directions of a connection whose halves are `read` and `write`. Once `cut` is cancelled nothing is
/// read or written any more.
pub(super) fn with_ends<R, W>(
    read: R,
    write: W,
    cut: &CancellationToken,
) -> (Reading<R>, Writing<W>) {
    let cut = || Box::pin(cut.clone().cancelled_owned());
    let read = Reading {
        inner: read,
        ended: false,
        cut: cut(),
    };
    let write = Writing {
        inner: write,
        cut: cut(),
    };
    (read, write)
}

/// What comes, until its end.
#[derive(Debug)]
pub struct Reading<R> {
    inner: R,
    ended: bool,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<R: AsyncRead + Unpin> AsyncRead for Reading<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ended || self.cut.as_mut().poll(context).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        if let Some(at) = memchr::memchr(END, &buffer.filled()[before..]) {
            buffer.set_filled(before + at);
            self.ended = true;
        }
        Poll::Ready(Ok(()))
    }
}

/// What goes; it is shut down by saying so.
#[derive(Debug)]
pub struct Writing<W> {
    inner: W,
    cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Writing<W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.cut.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = ready!(self.as_mut().poll_write(context, &[END]))?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.poll_flush(context)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf};

    use super::*;

    type End = (
        Reading<ReadHalf<DuplexStream>>,
        Writing<WriteHalf<DuplexStream>>,
    );

    fn pair(cut: &CancellationToken) -> (End, End) {
        let (one, other) = tokio::io::duplex(64);
        let end = |stream, cut: &CancellationToken| {
            let (read, write) = tokio::io::split(stream);
            with_ends(read, write, cut)
        };
        (end(one, cut), end(other, &CancellationToken::new()))
    }

    #[tokio::test]
    async fn one_direction_ends_and_the_other_goes_on() {
        let ((_, mut ask), (mut heard, mut answer)) = pair(&CancellationToken::new());
        ask.write_all(b"{\"text\":\"\\u0004\"}\n").await.unwrap();
        ask.shutdown().await.unwrap();
        let mut lines = String::new();
        heard.read_to_string(&mut lines).await.unwrap();
        assert_eq!(lines, "{\"text\":\"\\u0004\"}\n");
        answer.write_all(b"done\n").await.unwrap();
    }

    #[tokio::test]
    async fn what_follows_the_end_is_not_read() {
        let ((_, mut ask), (mut heard, _answer)) = pair(&CancellationToken::new());
        ask.write_all(b"first\n\x04second\n").await.unwrap();
        let mut bytes = [0; 3];
        heard.read_exact(&mut bytes).await.unwrap();
        let mut rest = Vec::new();
        heard.read_to_end(&mut rest).await.unwrap();
        assert_eq!((&bytes[..], &rest[..]), (&b"fir"[..], &b"st\n"[..]));
    }

    #[tokio::test]
    async fn a_cut_wakes_who_waits_for_either_direction() {
        let cut = CancellationToken::new();
        let ((mut heard, mut ask), _other) = pair(&cut);
        let waiting = async {
            let mut nothing = Vec::new();
            // More than there is room for.
            tokio::join!(heard.read_to_end(&mut nothing), ask.write_all(&[b'x'; 100]))
        };
        let cutting = async {
            tokio::task::yield_now().await;
            cut.cancel();
        };
        let ((read, written), ()) = tokio::join!(waiting, cutting);
        assert_eq!(read.unwrap(), 0);
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
