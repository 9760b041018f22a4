//! From requirements to the versions that meet them all, for one Python. Newest first, and a step back
//! where the newest needs what cannot be had. Asks a [`Source`]; reaches nothing by itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::str::FromStr as _;
use std::sync::Arc;

use pep508_rs::pep440_rs::{Version, VersionSpecifier, VersionSpecifiers};
use pep508_rs::{
    ExtraName, MarkerEnvironment, MarkerEnvironmentBuilder, PackageName, VersionOrUrl,
};

use super::index::{Offer, Shelf};
use super::wheel::Contents;
use super::{Package, PackagesError};
use crate::api::SandboxKind;

/// A requirement as PEP 508 has it.
pub(super) type Requirement = pep508_rs::Requirement;

/// Characters of a requirement.
const REQUIREMENT_CHARS_MAX: usize = 1_000;

/// Packages that one installation may come to.
const PACKAGES_MAX: usize = 50;

/// Versions of one package that are looked into before it is given up: each is a download.
const TRIES_MAX: usize = 5;

/// The Python that it is for.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) kind: SandboxKind,
    python: Version,
    minor: u64,
    markers: MarkerEnvironment,
}

impl Target {
    /// The Python of a sandbox, by what it says of its version.
    pub(crate) fn new(kind: SandboxKind, python: &str) -> Option<Self> {
        let version = Version::from_str(python).ok()?;
        let [3, minor, ..] = *version.release() else {
            return None;
        };
        let (platform, system, machine) = match kind {
            SandboxKind::Wasi => ("wasi", "wasi", "wasm32"),
            SandboxKind::Container => ("linux", "Linux", std::env::consts::ARCH),
        };
        let markers = MarkerEnvironment::try_from(MarkerEnvironmentBuilder {
            implementation_name: "cpython",
            implementation_version: python,
            os_name: "posix",
            platform_machine: machine,
            platform_python_implementation: "CPython",
            platform_release: "",
            platform_system: system,
            platform_version: "",
            python_full_version: python,
            python_version: &format!("3.{minor}"),
            sys_platform: platform,
        });
        Some(Self {
            kind,
            python: version,
            minor,
            markers: markers.ok()?,
        })
    }

    /// Whether a package says that it works there.
    pub(super) fn is_wanted_by(&self, requires_python: Option<&str>) -> bool {
        requires_python
            .and_then(|text| VersionSpecifiers::from_str(text).ok())
            .is_none_or(|wanted| wanted.contains(&self.python))
    }

    fn takes(&self, offer: &Offer) -> bool {
        let wanted = offer.requires_python.as_ref();
        wanted.is_none_or(|wanted| wanted.contains(&self.python))
    }
}

/// Read what somebody asked for.
pub(super) fn requirement(text: &str) -> Result<Requirement, PackagesError> {
    let unread = |why: String| PackagesError::Requirement {
        text: text.chars().take(100).collect(),
        why,
    };
    if text.chars().count() > REQUIREMENT_CHARS_MAX {
        return Err(unread(format!(
            "it has more than {REQUIREMENT_CHARS_MAX} characters"
        )));
    }
    // Before the reader sees it, which would look up variables in an address.
    if text.contains('@') {
        return Err(unread(
            "packages come from the index alone, and from no other address".to_owned(),
        ));
    }
    let read = Requirement::from_str(text.trim());
    // The rest of the reader's message is a drawing.
    read.map_err(|error| unread(error.message.to_string()))
}

/// Where versions are found, and looked into.
pub(super) trait Source {
    /// What there is of a package; `None`: nothing of that name.
    async fn shelf(&mut self, name: &PackageName) -> Result<Option<Arc<Shelf>>, PackagesError>;

    /// What a wheel says of itself.
    async fn contents(&mut self, offer: &Offer) -> Result<Contents, PackagesError>;
}

/// What is there already.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// What came with the sandbox.
    pub(super) present: BTreeMap<PackageName, Version>,
    /// What is installed for all.
    pub(super) installed: BTreeMap<PackageName, Package>,
}

/// One version that was decided on.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) version: Version,
    pub(super) from: From,
    /// Somebody asked for it by name.
    pub(super) wanted: bool,
    extras: BTreeSet<ExtraName>,
}

/// Where it comes from.
#[derive(Clone, Debug)]
pub(super) enum From {
    /// It came with the sandbox.
    Present,
    /// It is installed.
    Installed(Box<Package>),
    /// It is to be installed.
    Index(Box<Offer>, Contents),
}

#[derive(Clone)]
struct Want {
    requirement: Requirement,
    /// Who needs it; `None`: the one who asked.
    by: Option<String>,
}

impl Want {
    fn specifiers(&self) -> VersionSpecifiers {
        match &self.requirement.version_or_url {
            Some(VersionOrUrl::VersionSpecifier(specifiers)) => specifiers.clone(),
            Some(VersionOrUrl::Url(_)) | None => VersionSpecifiers::empty(),
        }
    }

    /// As whoever is told of it knows it.
    fn name(&self) -> String {
        self.requirement.name.to_string()
    }
}

/// How far it is. Copied where there is a choice, to come back to.
#[derive(Clone, Default)]
struct State {
    chosen: BTreeMap<PackageName, Chosen>,
    asked_by: BTreeMap<PackageName, Vec<String>>,
    pending: VecDeque<Want>,
}

/// What may be taken for a want.
#[derive(Clone)]
enum Candidate {
    Installed(Box<Package>, Version),
    Offer(Box<Offer>),
}

struct Branch {
    state: State,
    want: Want,
    left: VecDeque<Candidate>,
}

/// Find versions that meet all `wanted` and what they need.
pub(super) async fn resolve(
    target: &Target,
    wanted: Vec<Requirement>,
    known: &Known,
    source: &mut impl Source,
) -> Result<BTreeMap<PackageName, Chosen>, PackagesError> {
    let mut state = State::default();
    for requirement in wanted {
        if requirement.evaluate_markers(&target.markers, &[]) {
            state.pending.push_back(Want {
                requirement,
                by: None,
            });
        }
    }
    let mut branches: Vec<Branch> = Vec::new();
    let mut first: Option<PackagesError> = None;
    while let Some(want) = state.pending.pop_front() {
        let step = match meet(target, &mut state, &want, known, source).await {
            Ok(None) => continue,
            Ok(Some(left)) => {
                branches.push(Branch {
                    state: state.clone(),
                    want,
                    left,
                });
                Ok(())
            }
            Err(error) => Err(error.needed_by(want.by.as_deref())),
        };
        if let Err(error) = step {
            if error.is_final() {
                return Err(error);
            }
            // The newest way is the one that was meant: what kept it from working is told.
            first.get_or_insert(error);
        }
        state = take_next(target, &mut branches, &mut first, source).await?;
    }
    Ok(state.chosen)
}

/// Go on with the next candidate of the last choice that has one.
async fn take_next(
    target: &Target,
    branches: &mut Vec<Branch>,
    first: &mut Option<PackagesError>,
    source: &mut impl Source,
) -> Result<State, PackagesError> {
    while let Some(branch) = branches.last_mut() {
        let Some(candidate) = branch.left.pop_front() else {
            branches.pop();
            continue;
        };
        let (mut state, want) = (branch.state.clone(), branch.want.clone());
        match choose(target, &mut state, &want, candidate, source).await {
            Ok(()) => return Ok(state),
            Err(error) if error.is_final() => return Err(error),
            Err(error) => {
                first.get_or_insert(error.needed_by(want.by.as_deref()));
            }
        }
    }
    Err(first.take().unwrap_or(PackagesError::TooMany {
        packages_max: PACKAGES_MAX,
    }))
}

/// `None`: what is there or chosen meets it. Else what may be taken for it, best first.
async fn meet(
    target: &Target,
    state: &mut State,
    want: &Want,
    known: &Known,
    source: &mut impl Source,
) -> Result<Option<VecDeque<Candidate>>, PackagesError> {
    let name = &want.requirement.name;
    let specifiers = want.specifiers();
    let asked_by = state.asked_by.entry(name.clone()).or_default();
    asked_by.push(format!(
        "{} wants {}",
        want.by.as_deref().unwrap_or("this call"),
        if specifiers.is_empty() {
            "any version".to_owned()
        } else {
            specifiers.to_string()
        }
    ));
    if let Some(chosen) = state.chosen.get_mut(name) {
        if !specifiers.contains(&chosen.version) {
            return Err(PackagesError::Conflict {
                name: want.name(),
                asked: asked_by.join(", "),
            });
        }
        let before = chosen.extras.clone();
        chosen
            .extras
            .extend(want.requirement.extras.iter().cloned());
        if chosen.extras != before {
            let chosen = chosen.clone();
            need(target, state, name, &chosen)?;
        }
        return Ok(None);
    }
    if state.chosen.len() >= PACKAGES_MAX {
        return Err(PackagesError::TooMany {
            packages_max: PACKAGES_MAX,
        });
    }
    let usable = |package: &&Package| target.is_wanted_by(package.requires_python.as_deref());
    let installed = known.installed.get(name).filter(usable);
    let installed = installed.and_then(|package| {
        let version = Version::from_str(&package.version).ok()?;
        let fits = specifiers.contains(&version);
        fits.then(|| Candidate::Installed(Box::new(package.clone()), version))
    });
    if let Some(candidate) = installed {
        return Ok(Some(VecDeque::from([candidate])));
    }
    let present = known.present.get(name);
    if let Some(version) = present.filter(|version| specifiers.contains(version)) {
        let chosen = Chosen {
            version: version.clone(),
            from: From::Present,
            wanted: want.by.is_none(),
            extras: want.requirement.extras.iter().cloned().collect(),
        };
        state.chosen.insert(name.clone(), chosen);
        return Ok(None);
    }
    let shelf = source.shelf(name).await?;
    let shelf = shelf.ok_or_else(|| PackagesError::Unknown { name: want.name() })?;
    offers(target, want, &specifiers, &shelf).map(Some)
}

/// The pure wheels that fit, the newest first.
fn offers(
    target: &Target,
    want: &Want,
    specifiers: &VersionSpecifiers,
    shelf: &Shelf,
) -> Result<VecDeque<Candidate>, PackagesError> {
    let name = want.name();
    let mut fitting: Vec<&Offer> = shelf.wheels.iter().collect();
    fitting.retain(|offer| {
        offer.wheel.name == want.requirement.name && specifiers.contains(&offer.wheel.version)
    });
    if fitting.is_empty() {
        let of_it = shelf.wheels.iter().map(|offer| &offer.wheel.version);
        return Err(match of_it.max() {
            None if shelf.has_sources => PackagesError::SourceOnly { name },
            None => PackagesError::Unknown { name },
            Some(newest) => PackagesError::NoVersion {
                name,
                wanted: specifiers.to_string(),
                newest: newest.to_string(),
            },
        });
    }
    let newest = |offers: &[&Offer]| {
        let versions = offers.iter().map(|offer| &offer.wheel.version);
        versions.max().map(ToString::to_string).unwrap_or_default()
    };
    let version = newest(&fitting);
    let asks_for_pre = specifiers.iter().any(VersionSpecifier::any_prerelease);
    if !asks_for_pre
        && fitting
            .iter()
            .any(|offer| !offer.wheel.version.any_prerelease())
    {
        fitting.retain(|offer| !offer.wheel.version.any_prerelease());
    }
    fitting.retain(|offer| !offer.yanked);
    if fitting.is_empty() {
        return Err(PackagesError::Yanked { name, version });
    }
    let version = newest(&fitting);
    fitting.retain(|offer| !offer.wheel.is_native());
    if fitting.is_empty() {
        return Err(PackagesError::Native {
            name,
            version,
            kind: target.kind,
        });
    }
    let version = newest(&fitting);
    let of_newest = fitting
        .iter()
        .find(|offer| offer.wheel.version.to_string() == version);
    let wants = of_newest.and_then(|offer| offer.requires_python.as_ref());
    let wants = wants.map_or_else(
        || "another Python".to_owned(),
        |wants| format!("Python {wants}"),
    );
    fitting.retain(|offer| target.takes(offer) && offer.wheel.fits(target.minor));
    if fitting.is_empty() {
        return Err(PackagesError::Python {
            name,
            version,
            wants,
            has: target.python.to_string(),
        });
    }
    fitting.sort_by(|one, other| other.wheel.version.cmp(&one.wheel.version));
    fitting.dedup_by(|one, other| one.wheel.version == other.wheel.version);
    let best = fitting.into_iter().take(TRIES_MAX);
    Ok(best
        .map(|offer| Candidate::Offer(Box::new(offer.clone())))
        .collect())
}

/// Decide on a candidate, and let wait what it needs.
async fn choose(
    target: &Target,
    state: &mut State,
    want: &Want,
    candidate: Candidate,
    source: &mut impl Source,
) -> Result<(), PackagesError> {
    let (version, from) = match candidate {
        Candidate::Installed(package, version) => (version, From::Installed(package)),
        Candidate::Offer(offer) => {
            let contents = source.contents(&offer).await?;
            // An index may know less of a wheel than it says itself.
            if !target.is_wanted_by(contents.requires_python.as_deref()) {
                return Err(PackagesError::Python {
                    name: want.name(),
                    version: offer.wheel.version.to_string(),
                    wants: format!("Python {}", contents.requires_python.unwrap_or_default()),
                    has: target.python.to_string(),
                });
            }
            (offer.wheel.version.clone(), From::Index(offer, contents))
        }
    };
    let chosen = Chosen {
        version,
        from,
        wanted: want.by.is_none(),
        extras: want.requirement.extras.iter().cloned().collect(),
    };
    need(target, state, &want.requirement.name, &chosen)?;
    state.chosen.insert(want.requirement.name.clone(), chosen);
    Ok(())
}

/// Let wait what a package needs, with its extras.
fn need(
    target: &Target,
    state: &mut State,
    name: &PackageName,
    chosen: &Chosen,
) -> Result<(), PackagesError> {
    let requires = match &chosen.from {
        From::Present => return Ok(()),
        From::Installed(package) => &package.requires,
        From::Index(_, contents) => &contents.requires,
    };
    let extras: Vec<ExtraName> = chosen.extras.iter().cloned().collect();
    let by = format!("{name} {}", chosen.version);
    for text in requires {
        let requirement = requirement(text).map_err(|error| error.needed_by(Some(&by)))?;
        if requirement.evaluate_markers(&target.markers, &extras) {
            state.pending.push_back(Want {
                requirement,
                by: Some(by.clone()),
            });
        }
    }
    Ok(())
}

/// Who among the installed packages would miss another version of what is replaced.
pub(super) fn missed(
    target: &Target,
    installed: &BTreeMap<PackageName, Package>,
    chosen: &BTreeMap<PackageName, Chosen>,
) -> Result<(), PackagesError> {
    for package in installed.values() {
        if PackageName::from_str(&package.name).is_ok_and(|name| chosen.contains_key(&name)) {
            continue;
        }
        for text in &package.requires {
            let Ok(requirement) = requirement(text) else {
                continue;
            };
            let replaced = chosen
                .get(&requirement.name)
                .filter(|chosen| matches!(chosen.from, From::Index(..)))
                .filter(|_| requirement.evaluate_markers(&target.markers, &[]));
            if let (Some(replaced), Some(VersionOrUrl::VersionSpecifier(wanted))) =
                (replaced, &requirement.version_or_url)
                && !wanted.contains(&replaced.version)
            {
                return Err(PackagesError::Missed {
                    name: requirement.name.to_string(),
                    version: replaced.version.to_string(),
                    by: format!("{} {}", package.name, package.version),
                    wanted: wanted.to_string(),
                });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is a test's verdict")]
    use reqwest::Url;

    use super::super::wheel::WheelName;
    use super::*;

    /// Wheels by name: file, what it needs.
    #[derive(Default)]
    struct Shelves(BTreeMap<String, Vec<(&'static str, Vec<&'static str>)>>);

    impl Shelves {
        fn with(mut self, file: &'static str, requires: &[&'static str]) -> Self {
            let name = file.split('-').next().unwrap().replace('_', "-");
            let shelf = self.0.entry(name).or_default();
            shelf.push((file, requires.to_vec()));
            self
        }
    }

    impl Source for Shelves {
        async fn shelf(&mut self, name: &PackageName) -> Result<Option<Arc<Shelf>>, PackagesError> {
            let Some(files) = self.0.get(name.as_ref()) else {
                return Ok(None);
            };
            let mut shelf = Shelf::default();
            for (file, _) in files {
                let (file, note) = file.split_once('#').unwrap_or((file, ""));
                let Some(wheel) = WheelName::read(file) else {
                    shelf.has_sources = true;
                    continue;
                };
                let python = note.strip_prefix("python");
                shelf.wheels.push(Offer {
                    wheel,
                    file: file.to_owned(),
                    url: Url::parse("https://index.example/").unwrap(),
                    sha256: None,
                    bytes: None,
                    requires_python: python.map(|text| text.parse().unwrap()),
                    yanked: note == "yanked",
                });
            }
            Ok(Some(Arc::new(shelf)))
        }

        async fn contents(&mut self, offer: &Offer) -> Result<Contents, PackagesError> {
            let of_it = |file: &&str| file.split('#').next() == Some(&offer.file);
            let mut all = self.0.values().flatten();
            let (_, requires) = all.find(|(file, _)| of_it(file)).unwrap();
            Ok(Contents {
                requires: requires.iter().map(|&text| text.to_owned()).collect(),
                requires_python: None,
            })
        }
    }

    async fn resolved(shelves: Shelves, wanted: &[&str], known: Known) -> Result<String, String> {
        let target = Target::new(SandboxKind::Wasi, "3.13.5").unwrap();
        let wanted = wanted.iter().map(|text| requirement(text).unwrap());
        let mut shelves = shelves;
        let chosen = resolve(&target, wanted.collect(), &known, &mut shelves).await;
        let chosen = chosen.map_err(|error| error.to_string())?;
        let shown = chosen.iter().map(|(name, chosen)| {
            let from = match chosen.from {
                From::Present => " there",
                From::Installed(_) => " installed",
                From::Index(..) => "",
            };
            format!("{name} {}{from}", chosen.version)
        });
        Ok(shown.collect::<Vec<_>>().join(", "))
    }

    #[tokio::test]
    async fn the_newest_that_fits_is_taken_with_what_it_needs() {
        let shelves = || {
            Shelves::default()
                .with("a-1.0-py3-none-any.whl", &[])
                .with(
                    "a-2.0-py3-none-any.whl",
                    &["b>1", "w; sys_platform == 'win32'", "x; extra == 'more'"],
                )
                .with("a-3.0rc1-py3-none-any.whl", &[])
                .with("a-2.5-py3-none-any.whl#yanked", &[])
                .with("a-2.6-py3-none-any.whl#python>=3.14", &[])
                .with("a-2.7-cp313-cp313-manylinux1_x86_64.whl", &[])
                .with("b-1.5-py3-none-any.whl", &["a"])
                .with(
                    "x-1.0-py3-none-any.whl",
                    &["wasi-only; sys_platform == 'wasi'"],
                )
                .with("wasi_only-1.0-py3-none-any.whl", &[])
        };
        for (wanted, got) in [
            (&["a"][..], "a 2.0, b 1.5"),
            (&["a[more]"], "a 2.0, b 1.5, wasi-only 1.0, x 1.0"),
            (&["b", "a[more]"], "a 2.0, b 1.5, wasi-only 1.0, x 1.0"),
            (&["a<2"], "a 1.0"),
            (&["a>=3.0rc1"], "a 3.0rc1"),
            (&["A"], "a 2.0, b 1.5"),
        ] {
            let found = resolved(shelves(), wanted, Known::default()).await;
            assert_eq!(found.as_deref(), Ok(got), "{wanted:?}");
        }
    }

    #[tokio::test]
    async fn an_older_one_is_taken_if_the_newest_needs_what_cannot_be_had() {
        let shelves = Shelves::default()
            .with("a-1.0-py3-none-any.whl", &["c<2"])
            .with("a-2.0-py3-none-any.whl", &["fast", "c"])
            .with("c-1.0-py3-none-any.whl", &[])
            .with("c-2.0-py3-none-any.whl", &[])
            .with("fast-1.0-cp313-cp313-manylinux1_x86_64.whl", &[]);
        let found = resolved(shelves, &["a"], Known::default()).await;
        assert_eq!(found.as_deref(), Ok("a 1.0, c 1.0"));
    }

    #[tokio::test]
    async fn what_is_there_is_not_fetched_if_it_fits() {
        let shelves = || Shelves::default().with("a-2.0-py3-none-any.whl", &["b"]);
        let version = |text: &str| Version::from_str(text).unwrap();
        let name = |text: &str| PackageName::from_str(text).unwrap();
        let known = Known {
            present: BTreeMap::from([(name("b"), version("1.0")), (name("a"), version("1.0"))]),
            installed: BTreeMap::new(),
        };
        let found = resolved(shelves(), &["a"], known.clone()).await;
        assert_eq!(found.as_deref(), Ok("a 1.0 there"));
        let found = resolved(shelves(), &["a>1"], known.clone()).await;
        assert_eq!(found.as_deref(), Ok("a 2.0, b 1.0 there"));
        let installed = Package {
            name: "a".to_owned(),
            version: "1.5".to_owned(),
            requires: vec!["b".to_owned()],
            ..Package::default()
        };
        let known = Known {
            installed: BTreeMap::from([(name("a"), installed)]),
            ..known
        };
        let found = resolved(shelves(), &["a"], known).await;
        assert_eq!(found.as_deref(), Ok("a 1.5 installed, b 1.0 there"));
    }

    #[tokio::test]
    async fn what_cannot_be_had_says_why() {
        for (shelves, wanted, why) in [
            (Shelves::default(), &["a"][..], "has no package named `a`"),
            (
                Shelves::default().with("a-1.tar.gz", &[]),
                &["a"],
                "as source alone",
            ),
            (
                Shelves::default().with("a-1-cp313-cp313-linux_x86_64.whl", &[]),
                &["a"],
                "a 1 has native code",
            ),
            (
                Shelves::default().with("a-1-py3-none-any.whl#yanked", &[]),
                &["a"],
                "withdrawn",
            ),
            (
                Shelves::default().with("a-1-py3-none-any.whl#python>=3.15", &[]),
                &["a"],
                "needs Python >=3.15, and this sandbox has 3.13.5",
            ),
            (
                Shelves::default().with("a-1-py3-none-any.whl", &[]),
                &["a>2"],
                "no version of a is >2; the newest is 1",
            ),
            (
                Shelves::default()
                    .with("a-1-py3-none-any.whl", &["c<2"])
                    .with("b-1-py3-none-any.whl", &["c>=2"])
                    .with("c-1-py3-none-any.whl", &[])
                    .with("c-2-py3-none-any.whl", &[]),
                &["a", "b"],
                "no version of c fits all: a 1 wants <2, b 1 wants >=2",
            ),
            (
                Shelves::default()
                    .with("a-1-py3-none-any.whl", &["fast"])
                    .with("fast-2-cp313-cp313-linux_x86_64.whl", &[]),
                &["a"],
                "a 1 needs another package: fast 2 has native code",
            ),
        ] {
            let error = resolved(shelves, wanted, Known::default())
                .await
                .unwrap_err();
            assert!(error.contains(why), "{why}: {error}");
        }
    }

    #[tokio::test]
    async fn a_loop_ends_and_a_crowd_is_refused() {
        let shelves = Shelves::default()
            .with("a-1-py3-none-any.whl", &["b"])
            .with("b-1-py3-none-any.whl", &["a"]);
        let found = resolved(shelves, &["a"], Known::default()).await;
        assert_eq!(found.as_deref(), Ok("a 1, b 1"));
        let mut shelves = Shelves::default();
        let names: Vec<String> = (0..=PACKAGES_MAX).map(|n| format!("p{n}")).collect();
        for name in &names {
            let file: &'static str = format!("{name}-1-py3-none-any.whl").leak();
            shelves = shelves.with(file, &[]);
        }
        let wanted: Vec<&str> = names.iter().map(String::as_str).collect();
        let error = resolved(shelves, &wanted, Known::default())
            .await
            .unwrap_err();
        assert!(error.contains("more than 50 packages"), "{error}");
    }

    #[test]
    fn what_is_no_requirement_is_told() {
        for text in ["", "-r file", "a @ https://x.example/a.whl", "a ==", "../a"] {
            let error = requirement(text).unwrap_err().to_string();
            assert!(error.contains("cannot be installed"), "{text}: {error}");
        }
    }
}
