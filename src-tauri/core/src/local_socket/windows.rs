//! A named pipe that the system lets only its owner open, and nobody from another machine.

#[path = "windows/user.rs"]
mod user;

use std::ffi::c_void;
use std::io;
use std::os::windows::io::AsHandle as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::windows::named_pipe::{
    ClientOptions, NamedPipeClient, NamedPipeServer, ServerOptions,
};
use tokio_util::sync::CancellationToken;
use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_PIPE_BUSY, ERROR_PIPE_NOT_CONNECTED,
};
use windows_sys::Win32::Security::SECURITY_ATTRIBUTES;

use self::user::{Descriptor, User};
use super::ClaimError;
use super::ending::{END, Reading, Writing, with_ends};
use crate::{atomic, token};

/// What comes from the other end.
pub type ReadHalf = Reading<Half>;

/// What goes to the other end.
pub type WriteHalf = Writing<Half>;

/// Pause before another look at a pipe whose owner was not yet ready for one more. It makes a new
/// instance as soon as one is taken, and nothing asynchronous tells when.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// The pipe for a runtime folder. Windows does not tell `C:\Users` from `c:/users`.
pub(super) fn address(folder: &Path) -> PathBuf {
    let folder = folder.to_string_lossy().replace('/', "\\").to_lowercase();
    let digest = Sha256::digest(folder.as_bytes());
    PathBuf::from(format!(r"\\.\pipe\runbridge-{}", token::hex(&digest[..16])))
}

/// Have the folder of lock and token. What lies in a user's profile is the user's alone by inheritance.
pub(super) fn prepare(folder: &Path, _address: &Path) -> Result<(), ClaimError> {
    atomic::create_folder(folder).map_err(ClaimError::io("create", folder))
}

/// A pipe goes with its process, however that ends.
#[expect(clippy::unnecessary_wraps, reason = "fails elsewhere")]
pub(super) fn clear(_address: &Path) -> Result<(), ClaimError> {
    Ok(())
}

/// The pipe of the owner.
pub(crate) struct Listening {
    address: PathBuf,
    descriptor: Descriptor,
    /// The instance that the next one to come in gets.
    next: NamedPipeServer,
}

impl Listening {
    /// Listen there. It is an error if a pipe of that name is there already, whose owner could hear what
    /// is meant for us.
    pub(super) fn at(address: &Path) -> Result<Self, ClaimError> {
        let descriptor = User::own()
            .and_then(|user| Descriptor::for_only(&user))
            .map_err(ClaimError::io("protect", address))?;
        let next = match create(address, &descriptor, true) {
            Ok(next) => next,
            Err(error) if is(&error, ERROR_ACCESS_DENIED) => {
                return Err(ClaimError::InTheWay {
                    path: address.to_owned(),
                    why: "another program has a pipe of that name; end it",
                });
            }
            Err(error) => return Err(ClaimError::io("listen on", address)(error)),
        };
        Ok(Self {
            address: address.to_owned(),
            descriptor,
            next,
        })
    }

    /// Wait for someone to come in.
    pub(crate) async fn accept(&mut self) -> io::Result<Stream> {
        if let Err(error) = self.next.connect().await {
            self.next.disconnect()?;
            return Err(error);
        }
        // Before anything is done for the one who came, so that the next finds the pipe again. Who came
        // waits if there cannot be another now: the next call finds it connected.
        let next = create(&self.address, &self.descriptor, false)?;
        let taken = std::mem::replace(&mut self.next, next);
        Ok(Stream(Pipe::Server(taken)))
    }
}

#[expect(unsafe_code, reason = "who may open a pipe is told by a pointer")]
fn create(address: &Path, descriptor: &Descriptor, first: bool) -> io::Result<NamedPipeServer> {
    let mut attributes = SECURITY_ATTRIBUTES {
        nLength: size_of::<SECURITY_ATTRIBUTES>() as u32,
        lpSecurityDescriptor: descriptor.as_ptr(),
        bInheritHandle: 0,
    };
    let attributes: *mut c_void = (&raw mut attributes).cast();
    let mut options = ServerOptions::new();
    options
        .first_pipe_instance(first)
        .reject_remote_clients(true);
    // SAFETY: it is a valid SECURITY_ATTRIBUTES, and it and the descriptor that it points to outlive the
    // call, which keeps neither.
    unsafe { options.create_with_security_attributes_raw(address, attributes) }
}

/// One end of a connection.
pub(crate) struct Stream(Pipe);

impl Stream {
    /// To whoever listens there.
    pub(super) async fn connect(address: &Path) -> io::Result<Self> {
        loop {
            // The owner may learn who we are and do nothing in our name: the options' default.
            match ClientOptions::new().open(address) {
                Ok(pipe) => return Ok(Self(Pipe::Client(pipe))),
                Err(error) if is(&error, ERROR_PIPE_BUSY) => {
                    tokio::time::sleep(BUSY_PAUSE).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the other end belongs to our user. When in doubt it does not.
    ///
    /// For whoever listens this is said twice, as the system has looked at the pipe's descriptor. For
    /// whoever connects it is the owner of the pipe that counts, whom nobody can make up: the process that
    /// made it may have passed it on and be gone, and its number be another's.
    pub(crate) fn is_own(&self) -> bool {
        let other = match &self.0 {
            Pipe::Server(pipe) => User::of_client(pipe.as_handle()),
            Pipe::Client(pipe) => User::owning(pipe.as_handle()),
        };
        match (other, User::own()) {
            (Ok(other), Ok(own)) => other == own,
            (Err(error), _) | (_, Err(error)) => {
                tracing::warn!("it is not known whose the other end of the pipe is: {error}");
                false
            }
        }
    }

    /// Its directions, and what ends both.
    #[expect(clippy::unnecessary_wraps, reason = "fails elsewhere")]
    pub(crate) fn into_parts(self) -> io::Result<(ReadHalf, WriteHalf, Cutter)> {
        let pipe = Arc::new(self.0);
        let cut = CancellationToken::new();
        let half = || Half(Arc::clone(&pipe));
        let (read, write) = with_ends(half(), half(), &cut);
        Ok((read, write, Cutter { pipe, cut }))
    }
}

/// Ends a connection whose halves others have.
pub(crate) struct Cutter {
    pipe: Arc<Pipe>,
    cut: CancellationToken,
}

impl Cutter {
    /// From now on nothing is read or written, and the other end sees that at once.
    pub(crate) fn cut(&self) {
        self.cut.cancel();
        // What was written before can still be read behind this. It does not fit where the other end
        // reads nothing; then the system takes the pipe away.
        if matches!(self.pipe.try_write(&[END]), Ok(1)) {
            return;
        }
        if let Pipe::Server(pipe) = &*self.pipe
            && let Err(error) = pipe.disconnect()
        {
            tracing::debug!("the other end was gone already: {error}");
        }
    }
}

/// The two ends have no type in common.
#[derive(Debug)]
enum Pipe {
    Server(NamedPipeServer),
    Client(NamedPipeClient),
}

impl Pipe {
    fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Server(pipe) => pipe.poll_read_ready(context),
            Self::Client(pipe) => pipe.poll_read_ready(context),
        }
    }

    fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Server(pipe) => pipe.poll_write_ready(context),
            Self::Client(pipe) => pipe.poll_write_ready(context),
        }
    }

    fn try_read(&self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Server(pipe) => pipe.try_read(room),
            Self::Client(pipe) => pipe.try_read(room),
        }
    }

    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Server(pipe) => pipe.try_write(bytes),
            Self::Client(pipe) => pipe.try_write(bytes),
        }
    }
}

/// One direction of a pipe; it is closed when both are dropped.
#[derive(Debug)]
pub struct Half(Arc<Pipe>);

impl AsyncRead for Half {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The owner took it away: the end, as elsewhere.
                Err(error) if is(&error, ERROR_PIPE_NOT_CONNECTED) => return Poll::Ready(Ok(())),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Half {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match self.0.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }

    /// What is written is the system's at once.
    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

fn is(error: &io::Error, code: u32) -> bool {
    error.raw_os_error() == Some(code as i32)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed assumption fails the test")]

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn here() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let address = address(folder.path());
        (folder, address)
    }

    async fn connected(listening: &mut Listening, address: &Path) -> (Stream, Stream) {
        let (owner, other) = tokio::join!(listening.accept(), Stream::connect(address));
        (owner.unwrap(), other.unwrap())
    }

    #[test]
    fn a_folder_has_one_pipe_however_it_is_spelled() {
        let one = address(Path::new(r"C:\Users\U\AppData\Local\Runbridge\run"));
        assert_eq!(
            one,
            address(Path::new("c:/users/u/appdata/local/runbridge/run"))
        );
        assert_ne!(
            one,
            address(Path::new(r"C:\Users\V\AppData\Local\Runbridge\run"))
        );
        assert!(one.to_str().unwrap().starts_with(r"\\.\pipe\runbridge-"));
    }

    #[tokio::test]
    async fn there_is_one_pipe_of_a_name() {
        let (_folder, address) = here();
        let error = Stream::connect(&address).await.err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let listening = Listening::at(&address).unwrap();
        let error = Listening::at(&address).err().unwrap();
        assert!(matches!(error, ClaimError::InTheWay { .. }), "{error}");
        drop(listening);
        Listening::at(&address).unwrap();
    }

    #[tokio::test]
    async fn both_ends_know_their_own_user_and_speak_until_each_has_ended() {
        let (_folder, address) = here();
        let mut listening = Listening::at(&address).unwrap();
        for _ in 0..2 {
            let (owner, other) = connected(&mut listening, &address).await;
            assert!(owner.is_own() && other.is_own());
            let (mut read, mut write, _cutter) = owner.into_parts().unwrap();
            let (mut heard, mut said, _) = other.into_parts().unwrap();
            said.write_all(b"ask\n").await.unwrap();
            said.shutdown().await.unwrap();
            let mut lines = String::new();
            read.read_to_string(&mut lines).await.unwrap();
            assert_eq!(lines, "ask\n");
            write.write_all(b"answer\n").await.unwrap();
            drop((read, write, _cutter));
            lines.clear();
            heard.read_to_string(&mut lines).await.unwrap();
            assert_eq!(lines, "answer\n");
        }
    }

    #[tokio::test]
    async fn a_cut_ends_both_ends_even_where_nobody_reads() {
        let (_folder, address) = here();
        let mut listening = Listening::at(&address).unwrap();
        for written in [0, 8 << 20] {
            let (owner, other) = connected(&mut listening, &address).await;
            let (mut read, mut write, cutter) = owner.into_parts().unwrap();
            let (mut heard, _said, _) = other.into_parts().unwrap();
            let writing = tokio::spawn(async move {
                write.write_all(&vec![b'x'; written]).await.unwrap();
                write
            });
            let mut write = writing.await.unwrap();
            cutter.cut();
            assert_eq!(read.read(&mut [0; 8]).await.unwrap(), 0);
            write.write_all(b"late").await.unwrap_err();
            let mut rest = Vec::new();
            heard.read_to_end(&mut rest).await.unwrap();
            assert!(rest.len() <= written && !rest.contains(&b'l'));
        }
    }
}
