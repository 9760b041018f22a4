//! A screen that nobody sees: what is drawn on it is read as it is drawn.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

/// The longest wait for anything to be drawn.
const PATIENCE: Duration = Duration::from_secs(20);

/// A picture that has not changed for so long is done.
const STILL: Duration = Duration::from_millis(400);

/// Between two looks.
const LOOK: Duration = Duration::from_micros(500);

/// An X server of our own.
pub(super) struct Screen {
    server: Child,
    display: String,
    _folder: tempfile::TempDir,
    picture: File,
    seen: Vec<u8>,
    looked: Vec<u8>,
}

impl Screen {
    pub(super) fn start() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let mut server = Command::new("Xvfb")
            .args(["-displayfd", "1", "-nolisten", "tcp"])
            .args(["-screen", "0", "1280x900x24"])
            // The picture is a file there.
            .arg("-fbdir")
            .arg(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot start Xvfb")?;
        let mut number = String::new();
        let says = server.stdout.take().context("Xvfb says nothing")?;
        std::io::BufRead::read_line(&mut std::io::BufReader::new(says), &mut number)?;
        let mut picture = File::open(folder.path().join("Xvfb_screen0"))?;
        let mut seen = Vec::new();
        picture.read_to_end(&mut seen)?;
        Ok(Self {
            server,
            display: format!(":{}", number.trim()),
            _folder: folder,
            picture,
            looked: seen.clone(),
            seen,
        })
    }

    pub(super) fn display(&self) -> &str {
        &self.display
    }

    /// Wait until nothing is drawn any more.
    pub(super) fn wait_until_still(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        let mut changed = begun;
        while changed.elapsed() < STILL {
            if self.has_changed()? {
                changed = Instant::now();
            }
            ensure!(begun.elapsed() < PATIENCE, "the window is never still");
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Wait until something is drawn; milliseconds since `begun`.
    pub(super) fn changes_after(&mut self, begun: Instant) -> anyhow::Result<f64> {
        while !self.has_changed()? {
            ensure!(begun.elapsed() < PATIENCE, "nothing is drawn");
            std::thread::sleep(LOOK);
        }
        Ok(begun.elapsed().as_secs_f64() * 1000.0)
    }

    /// Whether the picture is another than at the last look.
    fn has_changed(&mut self) -> anyhow::Result<bool> {
        self.picture.read_exact_at(&mut self.looked, 0)?;
        let changed = self.looked != self.seen;
        if changed {
            std::mem::swap(&mut self.looked, &mut self.seen);
        }
        Ok(changed)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
