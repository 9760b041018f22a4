//! A package index on this machine, which serves wheels that it makes itself, and misbehaves as it is
//! told.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Cursor, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// How a file is handed out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// As it should be.
    #[default]
    Fair,
    /// With another byte in it than its hash is of.
    Changed,
    /// Without telling a hash.
    NoHash,
    /// The connection ends in the middle.
    Cut,
    /// Never, but for the first byte.
    Stuck,
}

/// A wheel to be made.
#[derive(Clone, Debug)]
pub struct Wheel {
    name: String,
    version: String,
    tag: String,
    pure: bool,
    files: Vec<(String, Vec<u8>)>,
    requires: Vec<String>,
    requires_python: Option<String>,
    yanked: bool,
    manner: Manner,
}

impl Wheel {
    /// A pure wheel with one module, which has the package's name and a constant `VERSION`.
    pub fn new(name: &str, version: &str) -> Self {
        let module = name.replace('-', "_");
        Self {
            name: name.to_owned(),
            version: version.to_owned(),
            tag: "py3-none-any".to_owned(),
            pure: true,
            files: vec![(
                format!("{module}.py"),
                format!("VERSION = '{version}'\n").into_bytes(),
            )],
            requires: Vec::new(),
            requires_python: None,
            yanked: false,
            manner: Manner::Fair,
        }
    }

    /// With this file in it, too.
    #[must_use]
    pub fn file(mut self, path: &str, content: impl Into<Vec<u8>>) -> Self {
        self.files.push((path.to_owned(), content.into()));
        self
    }

    /// It needs this.
    #[must_use]
    pub fn requires(mut self, requirement: &str) -> Self {
        self.requires.push(requirement.to_owned());
        self
    }

    /// It is for these Pythons.
    #[must_use]
    pub fn python(mut self, specifiers: &str) -> Self {
        self.requires_python = Some(specifiers.to_owned());
        self
    }

    /// With another tag than that of pure Python.
    #[must_use]
    pub fn tag(mut self, tag: &str) -> Self {
        tag.clone_into(&mut self.tag);
        self
    }

    /// It says that it is not pure, whatever its tag says.
    #[must_use]
    pub fn impure(mut self) -> Self {
        self.pure = false;
        self
    }

    /// Its publisher has taken it back.
    #[must_use]
    pub fn yanked(mut self) -> Self {
        self.yanked = true;
        self
    }

    /// Handed out like this.
    #[must_use]
    pub fn manner(mut self, manner: Manner) -> Self {
        self.manner = manner;
        self
    }

    /// The name of its file.
    pub fn file_name(&self) -> String {
        let name = self.name.replace('-', "_");
        format!("{name}-{}-{}.whl", self.version, self.tag)
    }

    /// Its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let info = format!("{}-{}.dist-info", self.name.replace('-', "_"), self.version);
        let mut metadata = format!(
            "Metadata-Version: 2.1\nName: {}\nVersion: {}\n",
            self.name, self.version
        );
        for requirement in &self.requires {
            writeln!(metadata, "Requires-Dist: {requirement}").unwrap();
        }
        if let Some(python) = &self.requires_python {
            writeln!(metadata, "Requires-Python: {python}").unwrap();
        }
        let wheel = format!(
            "Wheel-Version: 1.0\nRoot-Is-Purelib: {}\nTag: {}\n",
            self.pure, self.tag
        );
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        let more = [
            (format!("{info}/METADATA"), metadata.into_bytes()),
            (format!("{info}/WHEEL"), wheel.into_bytes()),
        ];
        for (path, content) in self.files.iter().chain(&more) {
            writer
                .start_file(path, SimpleFileOptions::default())
                .unwrap();
            writer.write_all(content).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }
}

#[derive(Default)]
struct Shelves {
    /// Package, file, bytes, and what to say of it.
    files: Vec<(Wheel, Vec<u8>)>,
    sources: Vec<String>,
    older_form: bool,
    asked: Vec<String>,
}

#[derive(Default)]
struct Shared {
    shelves: Mutex<Shelves>,
    closed: AtomicBool,
    changed: Condvar,
}

/// A running index. Dropping it ends it.
pub struct Index {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Index {
    /// An index with nothing in it.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::<Shared>::default();
        let serving = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if serving.closed.load(Ordering::SeqCst) {
                    return;
                }
                let (Ok(stream), serving) = (stream, Arc::clone(&serving)) else {
                    continue;
                };
                // Whoever hangs up in the middle does so on purpose.
                std::thread::spawn(move || drop(serve(&stream, &serving)));
            }
        });
        Self { address, shared }
    }

    /// As settings name it.
    pub fn url(&self) -> String {
        format!("http://{}/simple", self.address)
    }

    /// Have it offer a wheel, in place of one that has the same file name.
    pub fn put(&self, wheel: Wheel) {
        let mut shelves = self.shared.shelves.lock().unwrap();
        shelves
            .files
            .retain(|(known, _)| known.file_name() != wheel.file_name());
        let bytes = wheel.bytes();
        shelves.files.push((wheel, bytes));
    }

    /// Have it offer a source, and no wheel.
    pub fn put_source(&self, name: &str) {
        self.shared
            .shelves
            .lock()
            .unwrap()
            .sources
            .push(name.to_owned());
    }

    /// Answer with pages from now on, as indexes did before there was JSON.
    pub fn older_form(&self) {
        self.shared.shelves.lock().unwrap().older_form = true;
    }

    /// The paths that were asked for, in order.
    pub fn asked(&self) -> Vec<String> {
        self.shared.shelves.lock().unwrap().asked.clone()
    }

    /// Wait until a path that ends so is asked for.
    pub fn wait_for(&self, end: &str) {
        let shelves = self.shared.shelves.lock().unwrap();
        let limit = std::time::Duration::from_mins(1);
        let (_shelves, waited) = self
            .shared
            .changed
            .wait_timeout_while(shelves, limit, |shelves| {
                !shelves.asked.iter().any(|path| path.ends_with(end))
            })
            .unwrap();
        assert!(!waited.timed_out(), "nobody asked for {end}");
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.shared.changed.notify_all();
        // What waits for a connection sees that it is over.
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(mut stream: &TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    while line.trim() != "" {
        line.clear();
        reader.read_line(&mut line)?;
    }
    let mut shelves = shared.shelves.lock().unwrap();
    shelves.asked.push(path.clone());
    shared.changed.notify_all();
    if let Some(file) = path.strip_prefix("/files/") {
        let found = shelves
            .files
            .iter()
            .find(|(wheel, _)| wheel.file_name() == file);
        let Some((wheel, bytes)) = found.cloned() else {
            return answer(stream, "404 Not Found", "text/plain", b"");
        };
        let mut bytes = bytes;
        match wheel.manner {
            Manner::Fair | Manner::NoHash => answer(stream, "200 OK", "application/zip", &bytes),
            Manner::Changed => {
                let last = bytes.len() - 1;
                bytes[last] ^= 1;
                answer(stream, "200 OK", "application/zip", &bytes)
            }
            Manner::Cut => {
                head(stream, "200 OK", "application/zip", bytes.len())?;
                stream.write_all(&bytes[..bytes.len() / 2])
            }
            Manner::Stuck => {
                head(stream, "200 OK", "application/zip", bytes.len())?;
                stream.write_all(&bytes[..1])?;
                while !shared.closed.load(Ordering::SeqCst) {
                    shelves = shared.changed.wait(shelves).unwrap();
                }
                Ok(())
            }
        }
    } else {
        let name = path
            .trim_start_matches("/simple/")
            .trim_matches('/')
            .to_owned();
        let older = shelves.older_form;
        match page(&shelves, &name) {
            None => answer(stream, "404 Not Found", "text/plain", b""),
            Some(files) if older => answer(stream, "200 OK", "text/html", html(&files).as_bytes()),
            Some(files) => {
                let page =
                    json!({ "meta": { "api-version": "1.1" }, "name": name, "files": files });
                let kind = "application/vnd.pypi.simple.v1+json";
                answer(stream, "200 OK", kind, page.to_string().as_bytes())
            }
        }
    }
}

fn page(shelves: &Shelves, name: &str) -> Option<Vec<Value>> {
    let wheels = shelves.files.iter().filter(|(wheel, _)| wheel.name == name);
    let mut files: Vec<Value> = wheels
        .map(|(wheel, bytes)| {
            let hash = format!("{:x}", Sha256::digest(bytes));
            let file = wheel.file_name();
            let mut about = json!({
                "filename": file,
                "url": format!("../../files/{file}"),
                "hashes": if wheel.manner == Manner::NoHash { json!({}) } else { json!({ "sha256": hash }) },
                "size": bytes.len(),
                "yanked": wheel.yanked,
            });
            if let Some(python) = &wheel.requires_python {
                about["requires-python"] = python.as_str().into();
            }
            about
        })
        .collect();
    if shelves.sources.iter().any(|known| known == name) {
        let file = format!("{name}-1.0.tar.gz");
        files.push(json!({ "filename": file, "url": format!("../../files/{file}"), "hashes": {} }));
    }
    (!files.is_empty()).then_some(files)
}

fn html(files: &[Value]) -> String {
    let mut page = "<!DOCTYPE html><html><body>\n".to_owned();
    for file in files {
        let text = |key: &str| file[key].as_str().unwrap_or_default().to_owned();
        let hash = file["hashes"]["sha256"].as_str();
        let hash = hash.map_or_else(String::new, |hash| format!("#sha256={hash}"));
        let python = file["requires-python"]
            .as_str()
            .map_or_else(String::new, |python| {
                let python = python.replace('<', "&lt;").replace('>', "&gt;");
                format!(" data-requires-python=\"{python}\"")
            });
        let yanked = if file["yanked"] == true {
            " data-yanked=\"\""
        } else {
            ""
        };
        writeln!(
            page,
            "<a href=\"{}{hash}\"{python}{yanked}>{}</a><br/>",
            text("url"),
            text("filename")
        )
        .unwrap();
    }
    page + "</body></html>\n"
}

fn head(mut stream: &TcpStream, status: &str, kind: &str, bytes: usize) -> std::io::Result<()> {
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {bytes}\r\nConnection: close\r\n\r\n"
    )
}

fn answer(mut stream: &TcpStream, status: &str, kind: &str, body: &[u8]) -> std::io::Result<()> {
    head(stream, status, kind, body.len())?;
    stream.write_all(body)
}
