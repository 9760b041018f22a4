//! Pure Python packages that the code of a run may have installed: asked of the user, fetched from a
//! package index, checked, and put where all sandboxes see them. Nothing of a package is executed or
//! built here.
//!
//! It knows neither runs nor windows: whoever may install decides before, and mounts afterwards.

mod by_hand;
mod error;
mod index;
mod resolve;
mod shipped;
mod store;
mod wheel;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use pep508_rs::PackageName;
use pep508_rs::pep440_rs::Version;
use runbridge_sandbox::Mounts;
use serde::{Deserialize, Serialize};

pub use self::by_hand::{add, index_host, installed, remove};
pub use self::error::PackagesError;
use self::index::{Index, Offer, Shelf};
pub(crate) use self::resolve::Target;
use self::resolve::{Chosen, From, Known, Requirement};

use self::store::{New, Store, hash_of};
use self::wheel::Contents;
use crate::paths::{Environment, Paths};
use crate::timestamp::now_ms;
use crate::web::Web;

/// How long one installation may take, all downloads together.
pub(crate) const INSTALL: Duration = Duration::from_mins(2);

/// Packages that one call may ask for.
const ASKED_MAX: usize = 50;

/// Wheels of one installation, which are held in memory until all of them are known to be right.
const HELD_BYTES_MAX: u64 = 128 << 20;

/// Packages of an image that are looked at.
const PRESENT_MAX: usize = 5_000;

/// Hears what is being done, in words.
pub type Heard<'a> = &'a (dyn Fn(&str) + Send + Sync);

/// One package that is installed for all sessions.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct Package {
    /// Its name, as PEP 503 writes names.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The wheel.
    pub file: String,
    /// Of the wheel.
    pub sha256: String,
    /// Of the wheel.
    pub bytes: u64,
    /// The host of the index that it came from.
    pub index: String,
    /// Which Pythons it is for, if it says so.
    #[serde(default)]
    pub requires_python: Option<String>,
    /// What it needs, as written.
    #[serde(default)]
    pub requires: Vec<String>,
    /// Somebody asked for it by name.
    pub wanted: bool,
    /// Milliseconds since 1970.
    pub installed_at: i64,
}

/// What to install, for whom, and from where.
pub(crate) struct Order<'a> {
    /// PEP 508.
    pub(crate) requirements: &'a [String],
    pub(crate) target: &'a Target,
    /// What came with the sandbox, by name and version, as its guest or our inventory says.
    pub(crate) present: BTreeMap<String, String>,
    /// The index of the settings.
    pub(crate) index: Option<&'a str>,
    /// Of one wheel.
    pub(crate) bytes_max: u64,
}

/// What came of an order.
#[derive(Debug)]
pub(crate) struct Installation {
    /// All that was asked for and what that needs.
    pub(crate) there: Vec<There>,
    /// Those that were not installed before.
    pub(crate) new: Vec<Package>,
}

/// One of them.
#[derive(Debug, Serialize)]
pub(crate) struct There {
    pub(crate) name: String,
    pub(crate) version: String,
    /// `None`: it came with the sandbox.
    pub(crate) file: Option<String>,
}

/// The packages of this user.
#[derive(Clone, Debug)]
pub(crate) struct Packages {
    store: Store,
    paths: Paths,
}

impl Packages {
    pub(crate) fn new(paths: &Paths) -> Self {
        Self {
            store: Store::new(paths),
            paths: paths.clone(),
        }
    }

    /// All that is installed. Blocks for a small file.
    pub(crate) fn installed(&self) -> Vec<Package> {
        self.store.installed()
    }

    /// Those that a sandbox of this Python can use. As above.
    pub(crate) fn for_target(&self, target: &Target) -> Vec<Package> {
        let mut installed = self.store.installed();
        installed.retain(|package| target.is_wanted_by(package.requires_python.as_deref()));
        installed
    }

    /// Let a live interpreter see all that it can use; the files in force for it.
    pub(crate) async fn mount(
        &self,
        target: &Target,
        mounts: &Mounts,
    ) -> Result<Vec<String>, PackagesError> {
        let (this, target, there) = (self.clone(), target.clone(), mounts.clone());
        let (files, missing) = blocking(move || {
            let mut files = Vec::new();
            let mut missing = Vec::new();
            for package in this.for_target(&target) {
                let path = this.store.path(&package);
                if there.has(&package.file) && path.is_file() {
                    files.push(package.file);
                } else if let Ok(content) = std::fs::read(path) {
                    missing.push((package.file, content));
                }
            }
            Ok((files, missing))
        })
        .await?;
        let mut in_force = files;
        for (file, content) in missing {
            let mounted = mounts.add(&file, &content).await;
            mounted.map_err(|error| PackagesError::Mount {
                file: file.clone(),
                error,
            })?;
            in_force.push(file);
        }
        in_force.sort();
        Ok(in_force)
    }

    /// Where the files of those are. As above.
    pub(crate) fn paths_for(&self, target: &Target) -> Vec<PathBuf> {
        let packages = self.for_target(target);
        let paths = packages.iter().map(|package| self.store.path(package));
        paths.filter(|path| path.is_file()).collect()
    }

    /// The folder of all files, which exists from then on. Blocks.
    pub(crate) fn folder(&self) -> std::io::Result<PathBuf> {
        self.store.folder()
    }

    /// Take one away; tells whether it was there. Blocks.
    pub(crate) fn remove(&self, name: &str) -> Result<bool, PackagesError> {
        let name =
            PackageName::from_str(name).map_or_else(|_| name.to_owned(), |name| name.to_string());
        self.store.remove(&name)
    }

    /// What comes with the built-in Python, by name and version.
    pub(crate) async fn bundled(environment: &Environment) -> BTreeMap<String, String> {
        let environment = environment.clone();
        let read = blocking(move || Ok(shipped::Shipped::of(&environment).packages()));
        read.await.unwrap_or_default()
    }

    /// Whether nothing is installed, which is quickly seen.
    pub(crate) fn are_none(&self) -> bool {
        self.store.is_empty()
    }

    /// The host that packages would come from. Blocks for some small files.
    pub(crate) fn index_host(
        &self,
        setting: Option<&str>,
        environment: &Environment,
    ) -> Result<String, PackagesError> {
        Index::choose(setting, environment, &self.paths).map(|index| index.host())
    }

    /// What of the order is there already, if it is all of it: then nobody needs to be asked.
    pub(crate) async fn already(
        &self,
        order: &Order<'_>,
    ) -> Result<Option<Installation>, PackagesError> {
        let (wanted, known) = self.read(order).await?;
        match resolve::resolve(order.target, wanted, &known, &mut Offline).await {
            Ok(chosen) => Ok(Some(installation(chosen, Vec::new()))),
            Err(PackagesError::NotThere) => Ok(None),
            Err(PackagesError::Needed { error, .. })
                if matches!(*error, PackagesError::NotThere) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Carry out an order. Dropping the future leaves everything as it was.
    pub(crate) async fn install(
        &self,
        order: &Order<'_>,
        environment: &Environment,
        login: &BTreeMap<String, String>,
        heard: Heard<'_>,
    ) -> Result<Installation, PackagesError> {
        let done = self.fetch_and_install(order, environment, login, heard);
        tokio::time::timeout(INSTALL, done)
            .await
            .unwrap_or(Err(PackagesError::TimedOut))
    }

    async fn fetch_and_install(
        &self,
        order: &Order<'_>,
        environment: &Environment,
        login: &BTreeMap<String, String>,
        heard: Heard<'_>,
    ) -> Result<Installation, PackagesError> {
        let (wanted, known) = self.read(order).await?;
        let (setting, environment) = (order.index.map(str::to_owned), environment.clone());
        let paths = self.paths.clone();
        let index =
            blocking(move || Index::choose(setting.as_deref(), &environment, &paths)).await?;
        let mut online = Online {
            web: index.web(login).await,
            index,
            store: &self.store,
            bytes_max: order.bytes_max,
            heard,
            shelves: BTreeMap::new(),
            fetched: BTreeMap::new(),
        };
        let chosen = resolve::resolve(order.target, wanted, &known, &mut online).await?;
        let mut new = Vec::new();
        for (name, chosen) in &chosen {
            if let From::Index(offer, contents) = &chosen.from
                && let Some((sha256, content)) = online.fetched.remove(&offer.file)
            {
                new.push(New {
                    package: Package {
                        name: name.to_string(),
                        version: chosen.version.to_string(),
                        file: offer.file.clone(),
                        sha256,
                        bytes: content.len() as u64,
                        index: online.index.host(),
                        requires_python: contents.requires_python.clone(),
                        requires: contents.requires.clone(),
                        wanted: chosen.wanted,
                        installed_at: now_ms(),
                    },
                    content,
                });
            }
        }
        let packages: Vec<Package> = new.iter().map(|new| new.package.clone()).collect();
        if !new.is_empty() {
            let (store, target, chosen) =
                (self.store.clone(), order.target.clone(), chosen.clone());
            blocking(move || {
                store.install(&new, |installed| {
                    resolve::missed(&target, &by_name(installed), &chosen)
                })
            })
            .await?;
        }
        Ok(installation(chosen, packages))
    }

    async fn read(&self, order: &Order<'_>) -> Result<(Vec<Requirement>, Known), PackagesError> {
        if order.requirements.len() > ASKED_MAX {
            return Err(PackagesError::TooMany {
                packages_max: ASKED_MAX,
            });
        }
        let wanted = order
            .requirements
            .iter()
            .map(|text| resolve::requirement(text));
        let wanted = wanted.collect::<Result<_, _>>()?;
        let present = order.present.iter().take(PRESENT_MAX);
        let present = present.filter_map(|(name, version)| {
            let name = PackageName::from_str(name).ok()?;
            Some((name, Version::from_str(version).ok()?))
        });
        let store = self.store.clone();
        let installed = blocking(move || {
            let mut installed = store.installed();
            // One whose file is gone is fetched again.
            installed.retain(|package| store.path(package).is_file());
            Ok(installed)
        })
        .await?;
        let known = Known {
            present: present.collect(),
            installed: by_name(&installed),
        };
        Ok((wanted, known))
    }
}

fn by_name(installed: &[Package]) -> BTreeMap<PackageName, Package> {
    installed
        .iter()
        .filter_map(|package| Some((PackageName::from_str(&package.name).ok()?, package.clone())))
        .collect()
}

fn installation(chosen: BTreeMap<PackageName, Chosen>, new: Vec<Package>) -> Installation {
    let there = chosen.into_iter().map(|(name, chosen)| There {
        name: name.to_string(),
        version: chosen.version.to_string(),
        file: match chosen.from {
            From::Present => None,
            From::Installed(package) => Some(package.file),
            From::Index(offer, _) => Some(offer.file),
        },
    });
    Installation {
        there: there.collect(),
        new,
    }
}

/// Finds nothing: for whoever wants to know whether anything must be found.
struct Offline;

impl resolve::Source for Offline {
    async fn shelf(&mut self, _name: &PackageName) -> Result<Option<Arc<Shelf>>, PackagesError> {
        Err(PackagesError::NotThere)
    }

    async fn contents(&mut self, _offer: &Offer) -> Result<Contents, PackagesError> {
        Err(PackagesError::NotThere)
    }
}

/// The index, and what was fetched from it for one installation.
struct Online<'a> {
    web: Web,
    index: Index,
    store: &'a Store,
    bytes_max: u64,
    heard: Heard<'a>,
    shelves: BTreeMap<PackageName, Option<Arc<Shelf>>>,
    /// By file: hash and bytes.
    fetched: BTreeMap<String, (String, Vec<u8>)>,
}

impl resolve::Source for Online<'_> {
    async fn shelf(&mut self, name: &PackageName) -> Result<Option<Arc<Shelf>>, PackagesError> {
        if let Some(shelf) = self.shelves.get(name) {
            return Ok(shelf.clone());
        }
        (self.heard)(&format!("looking for {name} on {}", self.index.host()));
        let shelf = self.index.shelf(&self.web, name).await?.map(Arc::new);
        self.shelves.insert(name.clone(), shelf.clone());
        Ok(shelf)
    }

    async fn contents(&mut self, offer: &Offer) -> Result<Contents, PackagesError> {
        let content = match self.fetched.remove(&offer.file) {
            Some((_, content)) => content,
            None => self.bytes_of(offer).await?,
        };
        let sha256 = offer.sha256.clone().unwrap_or_default();
        let wheel = offer.wheel.clone();
        let (checked, content) =
            blocking(move || Ok((wheel::check(&wheel, &content), content))).await?;
        let contents = checked.map_err(|why| PackagesError::Wheel {
            file: offer.file.clone(),
            why,
        })?;
        self.fetched.insert(offer.file.clone(), (sha256, content));
        let held = self
            .fetched
            .values()
            .map(|(_, content)| content.len() as u64);
        if held.sum::<u64>() > HELD_BYTES_MAX {
            return Err(PackagesError::Heavy {
                bytes_max: HELD_BYTES_MAX,
            });
        }
        Ok(contents)
    }
}

impl Online<'_> {
    /// The bytes that the index means, from the cache or from it.
    async fn bytes_of(&self, offer: &Offer) -> Result<Vec<u8>, PackagesError> {
        let file = || offer.file.clone();
        let expected = offer.sha256.clone();
        let expected = expected.ok_or_else(|| PackagesError::NoHash { file: file() })?;
        let (store, name, hash) = (self.store.clone(), file(), expected.clone());
        let cached = blocking(move || {
            store.check_pin(&name, &hash)?;
            Ok(store.cached(&hash))
        });
        if let Some(content) = cached.await? {
            return Ok(content);
        }
        let bytes_max = self.bytes_max;
        if let Some(bytes) = offer.bytes.filter(|bytes| *bytes > bytes_max) {
            return Err(PackagesError::TooLarge {
                file: file(),
                bytes: Some(bytes),
                bytes_max,
            });
        }
        let what = format!("{} {}", offer.wheel.name, offer.wheel.version);
        let told = match offer.bytes {
            Some(bytes) => format!("downloading {what}, {}", rounded(bytes)),
            None => format!("downloading {what}"),
        };
        (self.heard)(&told);
        let mut next = TELL_EVERY_BYTES;
        let mut heard = |so_far: u64| {
            if so_far >= next {
                next = so_far + TELL_EVERY_BYTES;
                (self.heard)(&format!("{told}: {} so far", rounded(so_far)));
            }
        };
        let downloaded = self
            .index
            .download(&self.web, offer, bytes_max, INSTALL, &mut heard);
        let content = downloaded.await?;
        let (store, hash) = (self.store.clone(), expected.clone());
        let (found, content) = blocking(move || {
            let found = hash_of(&content);
            if found == hash {
                store.keep(&hash, &content);
            }
            Ok((found, content))
        })
        .await?;
        if found != expected {
            return Err(PackagesError::Hash {
                file: file(),
                expected,
                found,
            });
        }
        Ok(content)
    }
}

/// Between two words on how far a download is.
const TELL_EVERY_BYTES: u64 = 1_000_000;

/// `34 kB`, `1.2 MB`
fn rounded(bytes: u64) -> String {
    if bytes < 1_000_000 {
        format!("{} kB", bytes.div_ceil(1_000))
    } else {
        format!("{:.1} MB", bytes as f64 / 1e6)
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, PackagesError> + Send + 'static,
) -> Result<T, PackagesError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| {
            Err(PackagesError::Disk {
                doing: "go on",
                why: error.to_string(),
            })
        })
}
