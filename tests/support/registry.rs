//! A registry of images on loopback, in the few requests of the distribution protocol that engines
//! make to pull one; and an image for it. It can be slow, break off, hold back, and refuse.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::Engine;

const MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";

/// What a registry that takes its time writes at once, and how long it rests then: 200 kB/s, so
/// that any engine tells several times of a few MiB, however seldom it does.
const PIECE: usize = 8 * 1024;
const REST: Duration = Duration::from_millis(40);

/// An image as a registry keeps it.
#[derive(Clone)]
pub struct RegistryImage {
    manifest: Arc<[u8]>,
    /// By digest.
    blobs: HashMap<String, Arc<[u8]>>,
    /// The digest of its last layer, which no engine has seen before.
    new_layer: String,
}

impl RegistryImage {
    /// An image that has one layer with a file of `bytes` in it, and nothing to run.
    pub fn new(bytes: usize) -> Self {
        let config = json!({
            "architecture": architecture(),
            "os": "linux",
            "config": {},
            "rootfs": { "type": "layers", "diff_ids": [] },
            "history": [],
        });
        Self::with_new_layer(config, Vec::new(), bytes)
    }

    /// The image that `engine` knows as `reference`, with such a layer on top.
    pub fn upon(engine: &Engine, reference: &str, bytes: usize) -> Self {
        let files = files_of(&engine.save(reference));
        let file = |name: &Value| files[name.as_str().unwrap()].clone();
        let saved: Value = serde_json::from_slice(&files["manifest.json"]).unwrap();
        let saved = &saved[0];
        let config = serde_json::from_slice(&file(&saved["Config"])).unwrap();
        let layers = saved["Layers"].as_array().unwrap();
        Self::with_new_layer(config, layers.iter().map(file).collect(), bytes)
    }

    fn with_new_layer(mut config: Value, mut layers: Vec<Arc<[u8]>>, bytes: usize) -> Self {
        layers.push(layer(bytes));
        let digests: Vec<_> = layers.iter().map(|layer| digest(layer)).collect();
        let new_layer = digests.last().unwrap().clone();
        // Nothing is compressed, so that a layer has one digest.
        config["rootfs"]["diff_ids"] = json!(digests);
        let history = config["history"].as_array_mut().unwrap();
        history.push(json!({ "created_by": "a test" }));
        let config: Arc<[u8]> = config.to_string().into_bytes().into();
        let described = |kind: &str, digest: &str, size: usize| {
            json!({
                "mediaType": format!("application/vnd.docker.{kind}"),
                "digest": digest,
                "size": size,
            })
        };
        let of_layers: Vec<_> = std::iter::zip(&digests, &layers)
            .map(|(digest, layer)| described("image.rootfs.diff.tar", digest, layer.len()))
            .collect();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": described("container.image.v1+json", &digest(&config), config.len()),
            "layers": of_layers,
        });
        let mut blobs: HashMap<_, _> = std::iter::zip(digests, layers).collect();
        blobs.insert(digest(&config), config);
        Self {
            manifest: manifest.to_string().into_bytes().into(),
            blobs,
            new_layer,
        }
    }
}

/// How a registry gives the last layer of its image, or does not.
#[derive(Clone, Copy, Debug)]
pub enum Gives {
    /// Whole, as fast as it can.
    All,
    /// Whole, but slowly, until [`Registry::hurry`].
    Slowly,
    /// Its first half; then the connection breaks, and it is not given again.
    Half,
    /// A byte now and then, so that it takes hours.
    Little,
    /// Nothing at all to whoever has no account.
    Nothing,
}

/// A running registry. Dropping it ends it.
pub struct Registry {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    image: RegistryImage,
    gives: Gives,
    over: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
    /// Lines of requests, in order.
    asked: Mutex<Vec<String>>,
    /// The layer was given by half, and is not given again.
    broken: AtomicBool,
    hurried: AtomicBool,
    hung_up: AtomicBool,
}

impl Registry {
    /// Serve `image` under every name, with the tag `here` alone.
    pub fn serve(image: RegistryImage, gives: Gives) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            image,
            gives,
            over: AtomicBool::new(false),
            open: Mutex::default(),
            asked: Mutex::default(),
            broken: AtomicBool::new(false),
            hurried: AtomicBool::new(false),
            hung_up: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { continue };
                if serving.over.load(Ordering::SeqCst) {
                    return;
                }
                let mut open = serving.open.lock().unwrap();
                open.push(client.try_clone().unwrap());
                let serving = Arc::clone(&serving);
                std::thread::spawn(move || serving.talk(client));
            }
        });
        Self { address, shared }
    }

    /// The image's reference with this tag.
    pub fn reference(&self, tag: &str) -> String {
        format!("{}/tests/python:{tag}", self.address)
    }

    /// The layer that is held back was asked for.
    pub fn is_asked(&self) -> bool {
        let asked = self.shared.asked.lock().unwrap();
        let layer = &self.shared.image.new_layer;
        asked.iter().any(|line| line.contains(layer))
    }

    /// From now on, give as fast as it can what was given slowly.
    pub fn hurry(&self) {
        self.shared.hurried.store(true, Ordering::SeqCst);
    }

    /// Whoever the layer was held back from has hung up.
    pub fn is_given_up(&self) -> bool {
        self.shared.hung_up.load(Ordering::SeqCst)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // The thread that listens notices at its next client, which is this one.
        let _ = TcpStream::connect(self.address);
        for stream in self.shared.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    /// Answer one connection until it ends. An engine that is gone is its own affair.
    fn talk(&self, mut client: TcpStream) {
        let mut lines = BufReader::new(client.try_clone().unwrap());
        loop {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match lines.read_until(b'\n', &mut head) {
                    Ok(1..) if head.len() < 16 * 1024 => {}
                    Ok(_) | Err(_) => return,
                }
                // Engines try TLS first, which has no lines.
                if !head.starts_with(b"GET ") && !head.starts_with(b"HEAD ") {
                    let _ = client.write_all(b"HTTP/1.0 400 Bad Request\r\n\r\n");
                    return;
                }
            }
            let head = String::from_utf8_lossy(&head);
            let line = head.lines().next().unwrap_or_default();
            self.asked.lock().unwrap().push(line.to_owned());
            let mut words = line.split(' ');
            let (method, path) = (words.next(), words.next().unwrap_or_default());
            if self
                .answer(&mut client, method == Some("HEAD"), path)
                .is_none()
            {
                let _ = client.shutdown(Shutdown::Both);
                return;
            }
        }
    }

    /// `None`: the connection ends.
    fn answer(&self, client: &mut TcpStream, head_only: bool, path: &str) -> Option<()> {
        let name = path.rsplit('/').next().unwrap_or_default();
        let image = &self.image;
        if name == image.new_layer && self.broken.load(Ordering::SeqCst) {
            return None;
        }
        let manifest_digest = digest(&image.manifest);
        let error = |code: &str, message: &str| {
            let error = json!({ "errors": [{ "code": code, "message": message }] });
            Arc::from(error.to_string().into_bytes())
        };
        let (status, kind, body): (_, _, Arc<[u8]>) = if matches!(self.gives, Gives::Nothing) {
            let body = error("UNAUTHORIZED", "authentication required");
            ("401 Unauthorized", "application/json", body)
        } else if path == "/v2/" {
            ("200 OK", "application/json", Arc::from(*b"{}"))
        } else if path.contains("/manifests/") && [&manifest_digest[..], "here"].contains(&name) {
            ("200 OK", MANIFEST, Arc::clone(&image.manifest))
        } else if path.contains("/manifests/") {
            let body = error("MANIFEST_UNKNOWN", "manifest unknown");
            ("404 Not Found", "application/json", body)
        } else if let Some(blob) = image.blobs.get(name) {
            ("200 OK", "application/octet-stream", Arc::clone(blob))
        } else {
            let body = error("BLOB_UNKNOWN", "blob unknown");
            ("404 Not Found", "application/json", body)
        };
        let mut head = format!(
            "HTTP/1.1 {status}\r\nDocker-Distribution-API-Version: registry/2.0\r\n\
             Content-Type: {kind}\r\nContent-Length: {}\r\n",
            body.len()
        );
        if path.contains("/manifests/") {
            let _ = write!(head, "Docker-Content-Digest: {manifest_digest}\r\n");
        }
        if status.starts_with("401") {
            head += "WWW-Authenticate: Basic realm=\"tests\"\r\n";
        }
        client.write_all((head + "\r\n").as_bytes()).ok()?;
        if head_only {
            return Some(());
        }
        if name != image.new_layer {
            return client.write_all(&body).ok();
        }
        match self.gives {
            Gives::All | Gives::Nothing => client.write_all(&body).ok(),
            Gives::Slowly => {
                for piece in body.chunks(PIECE) {
                    client.write_all(piece).ok()?;
                    if !self.hurried.load(Ordering::SeqCst) {
                        std::thread::sleep(REST);
                    }
                }
                Some(())
            }
            Gives::Half => {
                self.broken.store(true, Ordering::SeqCst);
                client.write_all(&body[..body.len() / 2]).ok()?;
                None
            }
            Gives::Little => {
                for byte in body.chunks(1) {
                    if client.write_all(byte).is_err() {
                        self.hung_up.store(true, Ordering::SeqCst);
                        return None;
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
                None
            }
        }
    }
}

/// A layer with one file, which no engine has seen before.
fn layer(bytes: usize) -> Arc<[u8]> {
    let dir = tempfile::tempdir().unwrap();
    let mut random = std::fs::File::open("/dev/urandom").unwrap();
    let mut noise = vec![0; bytes];
    random.read_exact(&mut noise).unwrap();
    std::fs::write(dir.path().join("noise"), noise).unwrap();
    let tar = Command::new("tar")
        .args(["--owner=0", "--group=0", "-cf", "-", "-C"])
        .arg(dir.path())
        .arg("noise")
        .output()
        .unwrap();
    assert!(tar.status.success(), "{tar:?}");
    tar.stdout.into()
}

/// The files of an archive that an engine saved.
fn files_of(archive: &[u8]) -> HashMap<String, Arc<[u8]>> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image.tar");
    std::fs::write(&path, archive).unwrap();
    let done = Command::new("tar")
        .arg("-xf")
        .arg(&path)
        .arg("-C")
        .arg(dir.path())
        .status()
        .unwrap();
    assert!(done.success(), "{done}");
    std::fs::remove_file(&path).unwrap();
    let mut files = HashMap::new();
    let mut folders = vec![dir.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(bytes) = std::fs::read(&path) {
                let name = path.strip_prefix(dir.path()).unwrap();
                files.insert(name.to_str().unwrap().to_owned(), bytes.into());
            }
        }
    }
    files
}

fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    let mut text = "sha256:".to_owned();
    for byte in hash {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// As engines name it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
