//! A package index: which one is asked, and what it says of a package. Reads the two forms of the
//! simple API, and asks by `web.rs` alone. Knows nothing of what is chosen from it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::time::Duration;

use base64::Engine as _;
use pep508_rs::PackageName;
use pep508_rs::pep440_rs::VersionSpecifiers;
use reqwest::Url;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use serde::Deserialize;

use super::PackagesError;
use super::shipped::Shipped;
use super::wheel::WheelName;
use crate::paths::{Environment, Os, Paths};
use crate::secrets::Secret;
use crate::web::{Bounds, Web, WebError, shown};

/// What is asked for: JSON, or else the older form.
const FORMS: &str = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1";

/// The list of all files of one package. The longest known have some megabytes.
const PAGE: Bounds = Bounds {
    within: Duration::from_secs(30),
    bytes_max: 32 << 20,
};

/// Files of one package that are looked at; the newest come last.
const FILES_MAX: usize = 50_000;

/// A configuration file of another program.
const CONFIG_BYTES_MAX: u64 = 1 << 20;

/// Where packages come from.
#[derive(Clone, Debug)]
pub(super) struct Index {
    url: Url,
    /// What it wants to be shown, as it stood in the address.
    authority: Option<Secret>,
}

/// A wheel that an index has.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    pub(super) wheel: WheelName,
    pub(super) file: String,
    pub(super) url: Url,
    pub(super) sha256: Option<String>,
    pub(super) bytes: Option<u64>,
    pub(super) requires_python: Option<VersionSpecifiers>,
    pub(super) yanked: bool,
}

/// What an index has of one package.
#[derive(Clone, Debug, Default)]
pub(super) struct Shelf {
    pub(super) wheels: Vec<Offer>,
    /// It has sources, which are never built here.
    pub(super) has_sources: bool,
}

impl Index {
    /// The index that the user's settings name, else the one that their pip or uv uses, else the one of
    /// the Python that is shipped.
    pub(super) fn choose(
        setting: Option<&str>,
        environment: &Environment,
        paths: &Paths,
    ) -> Result<Self, PackagesError> {
        let named = setting
            .map(|url| (url.to_owned(), "packages.index in settings.json".to_owned()))
            .or_else(|| of_variables(environment))
            .or_else(|| of_pip(environment, paths))
            .or_else(|| of_uv(environment, paths))
            .or_else(|| of_python(environment));
        let (url, source) = named.ok_or(PackagesError::NoIndex)?;
        Self::read(&url).map_err(|why| PackagesError::Index {
            why: format!("{source} names no index that can be used: {why}"),
        })
    }

    fn read(text: &str) -> Result<Self, String> {
        let mut url = Url::parse(text.trim()).map_err(|_| "it is no address".to_owned())?;
        let authority = (!url.username().is_empty() || url.password().is_some()).then(|| {
            let decoded = |text: &str| {
                form_urlencoded::parse(text.replace('+', "%2B").as_bytes())
                    .next()
                    .map_or_else(String::new, |(name, _)| name.into_owned())
            };
            let pair = format!(
                "{}:{}",
                decoded(url.username()),
                decoded(url.password().unwrap_or_default())
            );
            let encoded = base64::engine::general_purpose::STANDARD.encode(pair);
            Secret::new(format!("Basic {encoded}"))
        });
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.set_query(None);
        url.set_fragment(None);
        match url.scheme() {
            "https" => {}
            "http" if crate::web::is_own_machine(&url) => {}
            _ => {
                return Err(format!(
                    "{} is not encrypted (https), which an index elsewhere must be",
                    shown(&url)
                ));
            }
        }
        if !url.path().ends_with('/') {
            let path = format!("{}/", url.path());
            url.set_path(&path);
        }
        Ok(Self { url, authority })
    }

    /// Its host, as people know it.
    pub(super) fn host(&self) -> String {
        self.url.host_str().unwrap_or_default().to_owned()
    }

    /// A way to ask it, which goes nowhere that it may not name.
    pub(super) async fn web(&self, login: &BTreeMap<String, String>) -> Web {
        Web::on_behalf_of(&self.url, login).await
    }

    /// What it has of a package; `None`: it knows none of that name.
    pub(super) async fn shelf(
        &self,
        web: &Web,
        name: &PackageName,
    ) -> Result<Option<Shelf>, PackagesError> {
        let page = self
            .url
            .join(&format!("{name}/"))
            .map_err(|error| wrong(error.to_string()))?;
        let mut headers = self.headers(&page);
        headers.insert(ACCEPT, HeaderValue::from_static(FORMS));
        let answer = web.fetch(&page, headers, PAGE, &mut |_| {}).await;
        let answer = answer.map_err(|error| unreachable(&error))?;
        match answer.status.as_u16() {
            200 => {}
            404 | 410 => return Ok(None),
            401 | 403 => {
                return Err(wrong(format!(
                    "{} wants a sign-in ({}); put it into the address of the index",
                    self.host(),
                    answer.status
                )));
            }
            _ => {
                return Err(wrong(format!(
                    "{} answered {}",
                    shown(&page),
                    answer.status
                )));
            }
        }
        let kind = answer.headers.get(CONTENT_TYPE);
        let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let shelf = if kind.contains("json") {
            of_json(&answer.url, &answer.body)
        } else {
            of_html(&answer.url, &String::from_utf8_lossy(&answer.body))
        };
        shelf.map(Some).ok_or_else(|| {
            wrong(format!(
                "{} answered with something that is no list of packages",
                shown(&page)
            ))
        })
    }

    /// The bytes of a wheel, whatever they are. `heard` is told how many have come.
    pub(super) async fn download(
        &self,
        web: &Web,
        offer: &Offer,
        bytes_max: u64,
        within: Duration,
        heard: &mut (dyn FnMut(u64) + Send),
    ) -> Result<Vec<u8>, PackagesError> {
        let bounds = Bounds {
            within,
            bytes_max: usize::try_from(bytes_max).unwrap_or(usize::MAX),
        };
        let headers = self.headers(&offer.url);
        let answer = web.fetch(&offer.url, headers, bounds, heard).await;
        let answer = answer.map_err(|error| match error {
            WebError::TooLong(_) => PackagesError::TooLarge {
                file: offer.file.clone(),
                bytes: None,
                bytes_max,
            },
            error => unreachable(&error),
        })?;
        if answer.status.is_success() {
            Ok(answer.body)
        } else {
            Err(wrong(format!(
                "{} answered {}",
                shown(&offer.url),
                answer.status
            )))
        }
    }

    /// Its own credentials go to it and to nobody else.
    fn headers(&self, url: &Url) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(authority) = self
            .authority
            .as_ref()
            .filter(|_| url.origin() == self.url.origin())
            && let Ok(mut value) = HeaderValue::from_str(authority.expose())
        {
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        headers
    }
}

fn unreachable(error: &WebError) -> PackagesError {
    wrong(format!("the package index: {error}"))
}

fn wrong(why: String) -> PackagesError {
    PackagesError::Index { why }
}

fn of_variables(environment: &Environment) -> Option<(String, String)> {
    ["PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL"]
        .into_iter()
        .find_map(|name| {
            // uv lets an index have a name: `name=https://...`.
            let value = environment.filled(name)?.trim();
            let url = match value.split_once('=') {
                Some((label, url)) if !label.contains(':') => url,
                _ => value,
            };
            Some((url.to_owned(), format!("the variable {name}")))
        })
}

/// What pip is set to use, from the files that it reads; the user's come before the machine's.
fn of_pip(environment: &Environment, paths: &Paths) -> Option<(String, String)> {
    let file = match environment.os() {
        Os::Windows => "pip.ini",
        Os::Linux | Os::Macos => "pip.conf",
    };
    let mut files: Vec<PathBuf> = environment.folder("PIP_CONFIG_FILE").into_iter().collect();
    files.push(paths.user_config.join("pip").join(file));
    files.push(paths.xdg_config.join("pip").join(file));
    files.push(
        paths
            .home
            .join(if environment.os() == Os::Windows {
                "pip"
            } else {
                ".pip"
            })
            .join(file),
    );
    match environment.os() {
        Os::Linux => files.extend(["/etc/xdg/pip/pip.conf", "/etc/pip.conf"].map(PathBuf::from)),
        Os::Macos => files.push("/Library/Application Support/pip/pip.conf".into()),
        Os::Windows => files.extend(
            environment
                .folder("ProgramData")
                .map(|folder| folder.join("pip/pip.ini")),
        ),
    }
    files.iter().find_map(|path| {
        let url = pip_index(&config(path)?)?;
        Some((url, path.display().to_string()))
    })
}

/// `index-url` of `[install]` or else of `[global]`.
fn pip_index(text: &str) -> Option<String> {
    let mut section = String::new();
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some(name) = trimmed.strip_prefix('[') {
            name.trim_end_matches(']').trim().clone_into(&mut section);
        } else if let Some((key, value)) = trimmed.split_once(['=', ':'])
            && key.trim().replace('_', "-") == "index-url"
            && !value.trim().is_empty()
        {
            found.insert(section.clone(), value.trim().to_owned());
        }
    }
    found.remove("install").or_else(|| found.remove("global"))
}

fn of_uv(environment: &Environment, paths: &Paths) -> Option<(String, String)> {
    let mut files: Vec<PathBuf> = environment.folder("UV_CONFIG_FILE").into_iter().collect();
    files.push(match environment.os() {
        Os::Windows => paths.user_config.join("uv/uv.toml"),
        Os::Linux | Os::Macos => paths.xdg_config.join("uv/uv.toml"),
    });
    if environment.os() != Os::Windows {
        files.push("/etc/uv/uv.toml".into());
    }
    files.iter().find_map(|path| {
        let url = uv_index(&config(path)?)?;
        Some((url, path.display().to_string()))
    })
}

fn uv_index(text: &str) -> Option<String> {
    let table: toml::Table = text.parse().ok()?;
    let default = table.get("index").and_then(toml::Value::as_array);
    let default = default.into_iter().flatten().find_map(|index| {
        let is_default = index.get("default").and_then(toml::Value::as_bool);
        index.get("url").filter(|_| is_default == Some(true))
    });
    let url = default.or_else(|| table.get("index-url"))?;
    url.as_str().map(str::to_owned)
}

fn of_python(environment: &Environment) -> Option<(String, String)> {
    let index = Shipped::of(environment).index?;
    Some((index, "the built-in Python".to_owned()))
}

fn config(path: &Path) -> Option<String> {
    let found = std::fs::metadata(path).ok()?;
    if !found.is_file() || found.len() > CONFIG_BYTES_MAX {
        return None;
    }
    std::fs::read_to_string(path).ok()
}

#[derive(Deserialize)]
struct Page {
    files: Vec<PageFile>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct PageFile {
    filename: String,
    url: String,
    #[serde(default)]
    hashes: BTreeMap<String, String>,
    #[serde(default)]
    requires_python: Option<String>,
    #[serde(default)]
    size: Option<u64>,
    /// `false`, `true` or a reason.
    #[serde(default)]
    yanked: serde_json::Value,
}

fn of_json(page: &Url, body: &[u8]) -> Option<Shelf> {
    let read: Page = serde_json::from_slice(body).ok()?;
    let mut shelf = Shelf::default();
    let skipped = read.files.len().saturating_sub(FILES_MAX);
    for file in read.files.into_iter().skip(skipped) {
        let yanked = !matches!(
            file.yanked,
            serde_json::Value::Null | serde_json::Value::Bool(false)
        );
        shelf.put(
            page,
            &file.filename,
            &file.url,
            file.hashes.get("sha256").cloned(),
            file.size,
            file.requires_python.as_deref(),
            yanked,
        );
    }
    Some(shelf)
}

/// The older form: one anchor for each file.
fn of_html(page: &Url, body: &str) -> Option<Shelf> {
    let mut shelf = Shelf::default();
    let mut rest = body;
    let mut anchors = 0;
    let lower = body.to_ascii_lowercase();
    if !lower.contains("<html") && !lower.contains("<!doctype html") {
        return None;
    }
    while let Some(at) = rest.find("<a").or_else(|| rest.find("<A")) {
        rest = &rest[at + 2..];
        if !rest.starts_with(|next: char| next.is_ascii_whitespace()) {
            continue;
        }
        anchors += 1;
        if anchors > FILES_MAX {
            break;
        }
        let (attributes, after) = attributes(rest);
        rest = after;
        let Some(href) = attributes.get("href") else {
            continue;
        };
        let end = rest.find('<').unwrap_or(rest.len());
        let file = unescaped(rest[..end].trim());
        let (address, fragment) = href.split_once('#').unwrap_or((href, ""));
        let sha256 = fragment
            .split('&')
            .find_map(|part| part.strip_prefix("sha256="));
        shelf.put(
            page,
            &file,
            address,
            sha256.map(str::to_owned),
            None,
            attributes.get("data-requires-python").map(String::as_str),
            attributes.contains_key("data-yanked"),
        );
    }
    Some(shelf)
}

/// The attributes of a tag whose name was just read, and what follows its end.
fn attributes(mut rest: &str) -> (BTreeMap<String, String>, &str) {
    let mut found = BTreeMap::new();
    loop {
        rest = rest.trim_start();
        if rest.is_empty() {
            return (found, rest);
        }
        if let Some(after) = rest.strip_prefix('>') {
            return (found, after);
        }
        let end = rest
            .find(|next: char| next.is_ascii_whitespace() || next == '=' || next == '>')
            .unwrap_or(rest.len());
        let name = rest[..end].to_ascii_lowercase();
        rest = rest[end..].trim_start();
        let mut value = "";
        if let Some(after) = rest.strip_prefix('=') {
            let after = after.trim_start();
            let quote = after
                .chars()
                .next()
                .filter(|next| matches!(next, '"' | '\''));
            let (inner, end) = if let Some(quote) = quote {
                let inner = &after[1..];
                (inner, inner.find(quote))
            } else {
                let ends = |next: char| next.is_ascii_whitespace() || next == '>';
                (after, after.find(ends))
            };
            let end = end.unwrap_or(inner.len());
            value = &inner[..end];
            rest = &inner[end..];
            if quote.is_some() && !rest.is_empty() {
                rest = &rest[1..];
            }
        } else if end == 0 {
            // Nothing that is an attribute.
            let mut letters = rest.chars();
            letters.next();
            rest = letters.as_str();
            continue;
        }
        found.insert(name, unescaped(value));
    }
}

fn unescaped(text: &str) -> String {
    let mut text = text.to_owned();
    for (escape, meant) in [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&#x27;", "'"),
        ("&amp;", "&"),
    ] {
        text = text.replace(escape, meant);
    }
    text
}

impl Shelf {
    #[allow(
        clippy::too_many_arguments,
        reason = "what both forms say of a file, and each is of another kind"
    )]
    fn put(
        &mut self,
        page: &Url,
        file: &str,
        address: &str,
        sha256: Option<String>,
        bytes: Option<u64>,
        requires_python: Option<&str>,
        yanked: bool,
    ) {
        let Some(wheel) = WheelName::read(file) else {
            self.has_sources |= [".tar.gz", ".zip"].iter().any(|end| file.ends_with(end));
            return;
        };
        let Ok(mut url) = page.join(address) else {
            return;
        };
        url.set_fragment(None);
        // One that cannot be read is not held against the file: its own METADATA says it again.
        let requires_python =
            requires_python.and_then(|text| VersionSpecifiers::from_str(text).ok());
        let is_hash =
            |hash: &String| hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit());
        self.wheels.push(Offer {
            wheel,
            file: file.to_owned(),
            url,
            sha256: sha256.filter(is_hash).map(|hash| hash.to_ascii_lowercase()),
            bytes,
            requires_python,
            yanked,
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is a test's verdict")]
    use super::*;

    #[test]
    fn the_older_form_says_the_same() {
        let page = Url::parse("https://index.example/simple/a/").unwrap();
        let hash = "0".repeat(64);
        let body = format!(
            "<!DOCTYPE html><html><body><abbr>no</abbr>
            <a href=\"../../files/a-1.0-py3-none-any.whl#sha256={hash}\" \
               data-requires-python=\"&gt;=3.8\">a-1.0-py3-none-any.whl</a><br/>
            <a href='https://files.example/a-2.0-py3-none-any.whl' data-yanked>a-2.0-py3-none-any.whl</a>
            <a data-x=1 href=a-1.0.tar.gz>a-1.0.tar.gz</a></body></html>"
        );
        let shelf = of_html(&page, &body).unwrap();
        assert!(shelf.has_sources);
        let [first, second] = shelf.wheels.as_slice() else {
            panic!("{shelf:?}");
        };
        assert_eq!(
            first.url.as_str(),
            "https://index.example/files/a-1.0-py3-none-any.whl"
        );
        assert_eq!(first.sha256.as_ref(), Some(&hash));
        assert_eq!(first.requires_python.as_ref().unwrap().to_string(), ">=3.8");
        assert!(second.yanked && second.sha256.is_none());
        assert!(of_html(&page, "{}").is_none());
    }

    #[test]
    fn other_programs_files_name_an_index() {
        let pip = "# mine\n[global]\nindex-url = https://one.example/simple\n[list]\nformat=x\n";
        assert_eq!(pip_index(pip).unwrap(), "https://one.example/simple");
        let both = format!("{pip}[install]\nindex_url: https://two.example/\n");
        assert_eq!(pip_index(&both).unwrap(), "https://two.example/");
        assert_eq!(pip_index("[search]\nindex-url=x"), None);
        let uv = "[[index]]\nurl = \"https://extra.example\"\n[[index]]\nurl = \"https://main.example\"\ndefault = true\n";
        assert_eq!(uv_index(uv).unwrap(), "https://main.example");
        assert_eq!(uv_index("index-url = \"https://x\"").unwrap(), "https://x");
    }

    #[test]
    fn an_index_is_encrypted_and_keeps_its_password_to_itself() {
        let index = Index::read("https://me:p%40ss@index.example/simple").unwrap();
        assert_eq!(index.url.as_str(), "https://index.example/simple/");
        assert!(!format!("{index:?}").contains("p@ss"));
        let here = Url::parse("https://index.example/files/a.whl").unwrap();
        let elsewhere = Url::parse("https://files.example/a.whl").unwrap();
        let shown = index.headers(&here);
        assert_eq!(shown.get(AUTHORIZATION).unwrap(), "Basic bWU6cEBzcw==");
        assert!(index.headers(&elsewhere).is_empty());
        assert!(Index::read("http://127.0.0.1:8/simple").is_ok());
        for refused in ["http://index.example/simple", "file:///tmp", "index"] {
            assert!(Index::read(refused).is_err(), "{refused}");
        }
    }
}
