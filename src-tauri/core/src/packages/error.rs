//! Why nothing was installed: what happened, to which package, and what to do now.

use runbridge_sandbox::MountError;

use super::INSTALL;
use crate::api::SandboxKind;

/// Why nothing was installed.
#[derive(Debug, thiserror::Error)]
pub enum PackagesError {
    /// It is no requirement.
    #[error("`{text}` cannot be installed: {why}; give a name such as tabulate, or tabulate>=0.9")]
    Requirement {
        /// What was asked for.
        text: String,
        /// What is wrong with it.
        why: String,
    },
    /// The index has nothing of that name.
    #[error("the package index has no package named `{name}`; check the name")]
    Unknown {
        /// The name.
        name: String,
    },
    /// It has compiled parts.
    #[error("{name} {version} has native code, and only pure Python can be installed; {}", native_hint(*kind))]
    Native {
        /// The package.
        name: String,
        /// Its newest version.
        version: String,
        /// Where it was wanted.
        kind: SandboxKind,
    },
    /// There is no wheel.
    #[error("{name} comes as source alone, and nothing is built here; take another package")]
    SourceOnly {
        /// The package.
        name: String,
    },
    /// It is for another Python.
    #[error("{name} {version} needs {wants}, and this sandbox has {has}; ask for an older version")]
    Python {
        /// The package.
        name: String,
        /// Its version.
        version: String,
        /// What it wants.
        wants: String,
        /// The Python that there is.
        has: String,
    },
    /// No version fits.
    #[error("no version of {name} is {wanted}; the newest is {newest}")]
    NoVersion {
        /// The package.
        name: String,
        /// Which were asked for.
        wanted: String,
        /// What there is.
        newest: String,
    },
    /// Who published it has taken it back.
    #[error("{name} {version} was withdrawn by who published it (yanked); ask for another version")]
    Yanked {
        /// The package.
        name: String,
        /// Its version.
        version: String,
    },
    /// Two want what excludes the other.
    #[error("no version of {name} fits all: {asked}")]
    Conflict {
        /// The package.
        name: String,
        /// Who wants which.
        asked: String,
    },
    /// What is installed would break.
    #[error(
        "{name} {version} would take the place of what {by} needs ({name}{wanted}); ask for a version that fits both, or have {by} removed: `runbridge packages remove`"
    )]
    Missed {
        /// The package.
        name: String,
        /// Its new version.
        version: String,
        /// Who needs another one.
        by: String,
        /// Which.
        wanted: String,
    },
    /// A package needs one that cannot be had.
    #[error("{by} needs another package: {error}")]
    Needed {
        /// Which needs it.
        by: String,
        /// Why it cannot be had.
        error: Box<Self>,
    },
    /// More packages than one installation may come to.
    #[error("this comes to more than {packages_max} packages, the most that one call may install")]
    TooMany {
        /// How many may be.
        packages_max: usize,
    },
    /// A wheel is too large.
    #[error("{file} has {}, and a package may have {bytes_max} bytes; the user can raise limits.package_bytes_max", size(*bytes))]
    TooLarge {
        /// The wheel.
        file: String,
        /// Its size, if the index told.
        bytes: Option<u64>,
        /// The limit.
        bytes_max: u64,
    },
    /// The index tells no hash.
    #[error("{file} is not installed: the index tells no sha256 to know it by")]
    NoHash {
        /// The wheel.
        file: String,
    },
    /// What came is not what the index has.
    #[error(
        "{file} is not installed: the index says that its sha256 is {expected}, and what came has {found}; try again, or tell who runs the index"
    )]
    Hash {
        /// The wheel.
        file: String,
        /// Of the index.
        expected: String,
        /// Of what came.
        found: String,
    },
    /// The index has something else under the same name than it had before.
    #[error(
        "{file} is not installed: it had the sha256 {pinned} when it was first installed here, and the index now has {now}; somebody replaced it"
    )]
    Pin {
        /// The wheel.
        file: String,
        /// Of then.
        pinned: String,
        /// Of now.
        now: String,
    },
    /// It is no pure wheel, whatever its name says.
    #[error("{file} is not installed: {why}")]
    Wheel {
        /// The wheel.
        file: String,
        /// What is wrong with it.
        why: String,
    },
    /// The index did not do its part.
    #[error("{why}")]
    Index {
        /// What happened.
        why: String,
    },
    /// Nobody said which index.
    #[error(
        "no package index is known; name one as packages.index in settings.json, or in the configuration of pip"
    )]
    NoIndex,
    /// It needs the index, and whoever asked did not want it to be asked.
    #[error("this is not installed")]
    NotThere,
    /// It took too long.
    #[error("the installation was not done within {} s; try again", INSTALL.as_secs())]
    TimedOut,
    /// The wheels of one installation are too large together.
    #[error("the packages of one installation may have {} MiB together; ask for fewer", bytes_max >> 20)]
    Heavy {
        /// How large they may be.
        bytes_max: u64,
    },
    /// As much is installed as may be.
    #[error("at most {packages_max} packages of {} MiB in all are installed; remove some: `runbridge packages remove`", bytes_max >> 20)]
    Full {
        /// How many.
        packages_max: usize,
        /// How large together.
        bytes_max: u64,
    },
    /// The interpreter does not take it in.
    #[error("{file} cannot be seen by this session: {error}")]
    Mount {
        /// The wheel.
        file: String,
        /// Why.
        error: MountError,
    },
    /// The disk refused.
    #[error("cannot {doing}: {why}")]
    Disk {
        /// What.
        doing: &'static str,
        /// Why.
        why: String,
    },
}

fn native_hint(kind: SandboxKind) -> &'static str {
    match kind {
        SandboxKind::Wasi => "switch to Container in Sandbox settings, with an image that has it",
        SandboxKind::Container => "the user can choose an image that has it, in Sandbox settings",
    }
}

fn size(bytes: Option<u64>) -> String {
    bytes.map_or_else(
        || "more bytes than the index said".to_owned(),
        |bytes| format!("{bytes} bytes"),
    )
}

impl PackagesError {
    /// As a word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Requirement { .. } => "package_malformed",
            Self::Unknown { .. } => "package_not_found",
            Self::Native { .. } | Self::SourceOnly { .. } => "package_not_pure",
            Self::Python { .. } | Self::NoVersion { .. } | Self::Yanked { .. } => {
                "package_version_not_found"
            }
            Self::Conflict { .. } | Self::Missed { .. } => "package_conflict",
            Self::Needed { error, .. } => error.code(),
            Self::TooMany { .. }
            | Self::TooLarge { .. }
            | Self::Heavy { .. }
            | Self::Full { .. } => "package_too_large",
            Self::NoHash { .. } | Self::Hash { .. } | Self::Pin { .. } | Self::Wheel { .. } => {
                "package_refused"
            }
            Self::Index { .. } | Self::NoIndex | Self::NotThere | Self::TimedOut => {
                "package_index_failed"
            }
            Self::Mount { .. } => "package_not_mounted",
            Self::Disk { .. } => "internal",
        }
    }

    /// Whether another version may do.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Unknown { .. }
            | Self::Requirement { .. }
            | Self::Native { .. }
            | Self::SourceOnly { .. }
            | Self::Python { .. }
            | Self::NoVersion { .. }
            | Self::Yanked { .. }
            | Self::Conflict { .. }
            | Self::Wheel { .. } => false,
            Self::Needed { error, .. } => error.is_final(),
            Self::Missed { .. }
            | Self::TooMany { .. }
            | Self::TooLarge { .. }
            | Self::NoHash { .. }
            | Self::Hash { .. }
            | Self::Pin { .. }
            | Self::Index { .. }
            | Self::NoIndex
            | Self::NotThere
            | Self::TimedOut
            | Self::Heavy { .. }
            | Self::Full { .. }
            | Self::Mount { .. }
            | Self::Disk { .. } => true,
        }
    }

    pub(super) fn needed_by(self, by: Option<&str>) -> Self {
        match (by, self) {
            // A conflict names all who take part in it.
            (Some(by), error) if !matches!(error, Self::Conflict { .. } | Self::Needed { .. }) => {
                Self::Needed {
                    by: by.to_owned(),
                    error: Box::new(error),
                }
            }
            (_, error) => error,
        }
    }

    pub(super) fn disk(doing: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self::Disk {
            doing,
            why: error.to_string(),
        }
    }
}
