//! The log on disk: one file that is set aside when it is full, and a few older ones. It knows bytes
//! and nothing of what is written; whoever writes has taken secrets out.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use tracing_subscriber::fmt::MakeWriter;

/// A day of a busy bridge at the usual level; still opens in any editor.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Older files that are kept beside the one in use.
const OLDER_KEPT: u32 = 3;

/// The name of the file in use.
pub(crate) const NAME: &str = "runbridge.log";

/// The log. One process writes it: the one that owns the bridge.
pub(crate) struct LogFile {
    state: Mutex<Open>,
}

struct Open {
    path: PathBuf,
    file: File,
    bytes: u64,
    bytes_max: u64,
}

impl LogFile {
    /// Continue the log in `folder`, which is made if need be.
    pub(crate) fn open(folder: &Path) -> io::Result<Self> {
        Self::bounded(folder, FILE_BYTES_MAX)
    }

    fn bounded(folder: &Path, bytes_max: u64) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let path = folder.join(NAME);
        let file = append_to(&path)?;
        let bytes = file.metadata()?.len();
        Ok(Self {
            state: Mutex::new(Open {
                path,
                file,
                bytes,
                bytes_max,
            }),
        })
    }
}

impl<'a> MakeWriter<'a> for LogFile {
    type Writer = &'a LogFile;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

impl Write for &LogFile {
    /// Called once per record.
    fn write(&mut self, record: &[u8]) -> io::Result<usize> {
        let mut open = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if open.bytes > 0 && open.bytes + record.len() as u64 > open.bytes_max {
            // A log that cannot be set aside goes on in the same file: better large than lost.
            if let Ok(file) = set_aside(&open.path) {
                open.file = file;
                open.bytes = 0;
            }
        }
        open.file.write_all(record)?;
        open.bytes += record.len() as u64;
        Ok(record.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// `runbridge.log` becomes `runbridge.1.log`, that one `runbridge.2.log`, and the oldest goes.
fn set_aside(path: &Path) -> io::Result<File> {
    let older = |number: u32| path.with_extension(format!("{number}.log"));
    for number in (1..OLDER_KEPT).rev() {
        match fs::rename(older(number), older(number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::rename(path, older(1))?;
    append_to(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends where its set-up fails")]

    use super::*;

    #[test]
    fn a_full_log_is_set_aside_whole_and_the_oldest_goes() {
        let folder = tempfile::tempdir().unwrap();
        let log = LogFile::bounded(folder.path(), 10).unwrap();
        for number in 0..6 {
            (&log)
                .write_all(format!("line {number}\n").as_bytes())
                .unwrap();
        }
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(read("runbridge.log"), "line 5\n");
        assert_eq!(read("runbridge.1.log"), "line 4\n");
        assert_eq!(read("runbridge.3.log"), "line 2\n");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 4);
        // It goes on where it was, and a record larger than the bound is not cut.
        drop(log);
        let log = LogFile::bounded(folder.path(), 20).unwrap();
        (&log).write_all(b"line 6\n").unwrap();
        assert_eq!(read("runbridge.log"), "line 5\nline 6\n");
        (&log).write_all(&[b'x'; 30]).unwrap();
        assert_eq!(read("runbridge.log").len(), 30);
    }
}
