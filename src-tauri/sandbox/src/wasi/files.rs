//! The file system of one sandbox: a tree in memory, bounded in bytes, files and descriptors.
//!
//! Nothing here touches the machine's own files, but reading those that were mounted as one whole,
//! such as the standard library. Knows nothing of WASI's numbers and memory layout; see `preview1`.
//! A clone is cheap and independent: that is how a checkpoint keeps files.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

/// A file's content is kept in pieces of this size, shared between clones until one is written.
const PIECE_BYTES: usize = 64 * 1024;

/// Files, folders and links in one sandbox. Each costs a few hundred bytes beside its content.
const NODES_MAX: usize = 16 * 1024;

const NAME_BYTES_MAX: usize = 255;
const PATH_BYTES_MAX: usize = 4096;
const LINKS_FOLLOWED_MAX: u32 = 32;

/// Why an operation was refused; the names are POSIX's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    BadDescriptor,
    Exists,
    FileTooBig,
    Invalid,
    Io,
    IsFolder,
    Loop,
    NameTooLong,
    NoEntry,
    NoSpace,
    NotEmpty,
    NotFolder,
    NotPermitted,
    ReadOnly,
    NotSeekable,
    TooManyDescriptors,
    CrossesAreas,
}

type Answer<T> = Result<T, Refusal>;

/// Where a node lives, and so whose bytes it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Area {
    /// Everything that the sandbox brings along; nobody writes there.
    System,
    Tmp,
    Workspace,
}

#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_field_names, reason = "limits are named so everywhere")]
pub(crate) struct FilesLimits {
    pub(crate) tmp_bytes_max: u64,
    pub(crate) workspace_bytes_max: u64,
    pub(crate) descriptors_max: usize,
    /// Shared with the linear memory, which counts by [`Files::memory_bytes`].
    pub(crate) memory_bytes_max: u64,
}

/// What a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Folder,
    Link,
    Device,
}

/// What `stat` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) node: u64,
    pub(crate) kind: Kind,
    pub(crate) links: u64,
    pub(crate) size: u64,
    pub(crate) accessed_at: u64,
    pub(crate) modified_at: u64,
    pub(crate) changed_at: u64,
}

/// How to open a path.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Open {
    pub(crate) follow: bool,
    pub(crate) create: bool,
    pub(crate) exclusive: bool,
    pub(crate) truncate: bool,
    pub(crate) folder: bool,
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
}

/// What an open descriptor stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Always at its end.
    Input,
    /// 1 or 2: printed text, which the caller takes care of.
    Output(u8),
    /// A node of the tree.
    Node,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    pub(crate) target: Target,
    pub(crate) read: bool,
    pub(crate) write: bool,
    pub(crate) append: bool,
    node: usize,
    offset: u64,
}

/// One entry of a folder; `cookie` continues behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) cookie: u64,
    pub(crate) node: u64,
    pub(crate) kind: Kind,
    pub(crate) name: Arc<str>,
}

#[derive(Clone)]
struct Node {
    area: Area,
    links: u32,
    opened: u32,
    accessed_at: u64,
    modified_at: u64,
    changed_at: u64,
    body: Body,
}

#[derive(Clone)]
enum Body {
    File {
        size: u64,
        pieces: Vec<Option<Arc<Vec<u8>>>>,
    },
    Folder(Folder),
    Link(Arc<str>),
    /// Swallows what is written, has nothing to read.
    Null,
    /// A file of the machine, read in place.
    Mounted {
        file: Arc<File>,
        size: u64,
    },
    /// Bytes that came with us.
    Fixed(Bytes),
}

#[derive(Clone)]
struct Folder {
    parent: usize,
    by_name: BTreeMap<Arc<str>, u64>,
    /// In the order of creation, so that a listing goes on where it was while entries go.
    by_cookie: BTreeMap<u64, (Arc<str>, usize)>,
    next_cookie: u64,
}

impl Folder {
    fn new(parent: usize) -> Self {
        Self {
            parent,
            by_name: BTreeMap::new(),
            by_cookie: BTreeMap::new(),
            // 1 and 2 are `.` and `..`.
            next_cookie: 3,
        }
    }

    fn get(&self, name: &str) -> Option<usize> {
        let cookie = self.by_name.get(name)?;
        Some(self.by_cookie.get(cookie)?.1)
    }

    fn insert(&mut self, name: &str, node: usize) {
        let name: Arc<str> = name.into();
        self.by_name.insert(name.clone(), self.next_cookie);
        self.by_cookie.insert(self.next_cookie, (name, node));
        self.next_cookie += 1;
    }

    fn remove(&mut self, name: &str) -> Option<usize> {
        let cookie = self.by_name.remove(name)?;
        Some(self.by_cookie.remove(&cookie)?.1)
    }
}

/// The tree and the open descriptors.
#[derive(Clone)]
pub(crate) struct Files {
    limits: FilesLimits,
    nodes: Vec<Option<Arc<Node>>>,
    free: Vec<usize>,
    descriptors: Vec<Option<Descriptor>>,
    tmp_bytes: u64,
    workspace_bytes: u64,
    /// Bytes that the linear memory takes of the common limit.
    memory_bytes_elsewhere: u64,
    /// Files that came while the guest lived. Of a clone, those that it had then.
    later: usize,
    /// Nanoseconds since 1970, for time stamps; the caller keeps it.
    pub(crate) now: u64,
}

/// The folder of packages that were installed.
pub(crate) const PACKAGES: &str = "packages";

const ROOT: usize = 0;
/// The descriptor under which the guest finds the tree's root.
pub(crate) const ROOT_DESCRIPTOR: u32 = 3;

impl Files {
    pub(crate) fn new(limits: FilesLimits) -> Self {
        let mut files = Self {
            limits,
            nodes: Vec::new(),
            free: Vec::new(),
            descriptors: Vec::new(),
            tmp_bytes: 0,
            workspace_bytes: 0,
            memory_bytes_elsewhere: 0,
            later: 0,
            now: 0,
        };
        files.put(Area::System, Body::Folder(Folder::new(ROOT)));
        files.node_mut(ROOT).links = 1;
        for (name, area) in [
            ("dev", Area::System),
            ("lib", Area::System),
            (PACKAGES, Area::System),
            ("tmp", Area::Tmp),
            ("workspace", Area::Workspace),
        ] {
            let folder = files.put(area, Body::Folder(Folder::new(ROOT)));
            files.attach(ROOT, name, folder);
        }
        if let Ok(dev) = files.walk(ROOT, "/dev", true) {
            let null = files.put(Area::System, Body::Null);
            files.attach(dev, "null", null);
        }
        files.descriptors = vec![
            Some(Descriptor::stream(Target::Input)),
            Some(Descriptor::stream(Target::Output(1))),
            Some(Descriptor::stream(Target::Output(2))),
            Some(Descriptor {
                target: Target::Node,
                read: true,
                write: false,
                append: false,
                node: ROOT,
                offset: 0,
            }),
        ];
        files.node_mut(ROOT).opened = 1;
        files
    }

    /// Put a file of the machine at `/<folder>/<name>`. Read in place and never written.
    pub(crate) fn mount(&mut self, folder: &str, name: &str, file: File) -> std::io::Result<()> {
        let size = file.metadata()?.len();
        let body = Body::Mounted {
            file: Arc::new(file),
            size,
        };
        self.add(folder, name, body);
        Ok(())
    }

    /// [`Files::mount`] each at `/lib` under its own name.
    pub(crate) fn mount_all(&mut self, paths: &[PathBuf]) -> Result<(), String> {
        for path in paths {
            self.mount_one("lib", path)
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }

    /// [`Files::mount`] a file under its own name.
    pub(crate) fn mount_one(&mut self, folder: &str, path: &Path) -> std::io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.mount(folder, &name, File::open(path)?)
    }

    /// Put bytes at `/<folder>/<name>`; never written. What is there stays.
    pub(crate) fn fixed(&mut self, folder: &str, name: &str, bytes: impl Into<Bytes>) {
        self.add(folder, name, Body::Fixed(bytes.into()));
    }

    /// How many of the files that came later are here; see [`super::door::Door::mounts_after`].
    pub(crate) fn later(&self) -> usize {
        self.later
    }

    /// Put a file at `/packages/<name>` that came later.
    pub(crate) fn mount_later(&mut self, name: &str, bytes: Bytes) {
        self.fixed(PACKAGES, name, bytes);
        self.later += 1;
    }

    fn add(&mut self, folder: &str, name: &str, body: Body) {
        let parent = self.walk(ROOT, folder, true).unwrap_or_else(|_| {
            let made = self.put(Area::System, Body::Folder(Folder::new(ROOT)));
            self.attach(ROOT, folder, made);
            made
        });
        let there =
            matches!(&self.node(parent).body, Body::Folder(in_it) if in_it.get(name).is_some());
        if !there {
            let node = self.put(Area::System, body);
            self.attach(parent, name, node);
        }
    }

    /// Bytes that file contents take.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.tmp_bytes + self.workspace_bytes
    }

    /// Tell how many bytes of the common limit the linear memory takes.
    pub(crate) fn set_memory_bytes_elsewhere(&mut self, bytes: u64) {
        self.memory_bytes_elsewhere = bytes;
    }

    pub(crate) fn descriptor(&self, fd: u32) -> Answer<Descriptor> {
        self.descriptors
            .get(fd as usize)
            .copied()
            .flatten()
            .ok_or(Refusal::BadDescriptor)
    }

    pub(crate) fn set_append(&mut self, fd: u32, append: bool) -> Answer<()> {
        self.descriptor_mut(fd)?.append = append;
        Ok(())
    }

    /// The standard descriptors stay, whatever is said: the guest depends on them, and a program
    /// that closes them does so in order to let go.
    pub(crate) fn close(&mut self, fd: u32) -> Answer<()> {
        let descriptor = self.descriptor(fd)?;
        if fd < ROOT_DESCRIPTOR {
            return Ok(());
        }
        self.descriptors[fd as usize] = None;
        if descriptor.target == Target::Node {
            self.node_mut(descriptor.node).opened -= 1;
            self.release(descriptor.node);
        }
        Ok(())
    }

    /// Make `to` what `from` was; `from` is closed then.
    pub(crate) fn renumber(&mut self, from: u32, to: u32) -> Answer<()> {
        let descriptor = self.descriptor(from)?;
        self.descriptor(to)?;
        if from < ROOT_DESCRIPTOR || to < ROOT_DESCRIPTOR {
            return Err(Refusal::NotPermitted);
        }
        if from != to {
            self.close(to)?;
            self.descriptors[to as usize] = Some(descriptor);
            self.descriptors[from as usize] = None;
        }
        Ok(())
    }

    pub(crate) fn open(&mut self, folder: u32, path: &str, how: Open) -> Answer<u32> {
        let base = self.folder_of(folder)?;
        let fd = self.free_descriptor()?;
        let node = match self.walk(base, path, how.follow && !how.exclusive) {
            Ok(_) if how.create && how.exclusive => return Err(Refusal::Exists),
            Ok(node) => node,
            // Such a name can only be a folder's.
            Err(Refusal::NoEntry) if how.create && path.ends_with('/') => {
                return Err(Refusal::IsFolder);
            }
            Err(Refusal::NoEntry) if how.create && !how.folder => {
                let (parent, name) = self.parent_of(base, path, how.follow)?;
                let body = Body::File {
                    size: 0,
                    pieces: Vec::new(),
                };
                self.create(parent, &name, body)?
            }
            Err(refusal) => return Err(refusal),
        };
        let area = self.node(node).area;
        match &self.node(node).body {
            Body::Folder(_) if how.write || how.truncate => return Err(Refusal::IsFolder),
            Body::Link(_) => return Err(Refusal::Loop),
            Body::Folder(_) | Body::Null => {}
            _ if how.folder => return Err(Refusal::NotFolder),
            _ if (how.write || how.truncate) && area == Area::System => {
                return Err(Refusal::ReadOnly);
            }
            _ => {}
        }
        if how.truncate {
            self.resize(node, 0)?;
        }
        self.node_mut(node).opened += 1;
        self.descriptors[fd] = Some(Descriptor {
            target: Target::Node,
            read: how.read,
            write: how.write,
            append: how.append,
            node,
            offset: 0,
        });
        Ok(fd as u32)
    }

    /// Read at the descriptor's place, and move it.
    pub(crate) fn read(&mut self, fd: u32, out: &mut [u8]) -> Answer<usize> {
        let descriptor = self.descriptor(fd)?;
        if descriptor.target == Target::Input {
            return Ok(0);
        }
        let count = self.read_at(fd, out, descriptor.offset)?;
        self.descriptor_mut(fd)?.offset += count as u64;
        Ok(count)
    }

    pub(crate) fn read_at(&mut self, fd: u32, out: &mut [u8], offset: u64) -> Answer<usize> {
        let descriptor = self.descriptor(fd)?;
        if !descriptor.read || descriptor.target != Target::Node {
            return Err(Refusal::BadDescriptor);
        }
        let count = match &self.node(descriptor.node).body {
            Body::File { size, pieces } => read_pieces(pieces, *size, out, offset),
            Body::Fixed(bytes) => {
                let from = usize::try_from(offset)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                let count = out.len().min(bytes.len() - from);
                out[..count].copy_from_slice(&bytes[from..from + count]);
                count
            }
            Body::Mounted { file, size } => {
                let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
                let count = out.len().min(left);
                read_mounted(file, &mut out[..count], offset).map_err(|_| Refusal::Io)?
            }
            Body::Null => 0,
            Body::Folder(_) => return Err(Refusal::IsFolder),
            Body::Link(_) => return Err(Refusal::Invalid),
        };
        Ok(count)
    }

    /// Write at the descriptor's place, or at the end if it appends, and move it.
    pub(crate) fn write(&mut self, fd: u32, bytes: &[u8]) -> Answer<usize> {
        let descriptor = self.descriptor(fd)?;
        let offset = if descriptor.append {
            self.size(descriptor.node)
        } else {
            descriptor.offset
        };
        let count = self.write_at(fd, bytes, offset)?;
        self.descriptor_mut(fd)?.offset = offset + count as u64;
        Ok(count)
    }

    /// Writes as much as there is room for; refuses when there is none.
    pub(crate) fn write_at(&mut self, fd: u32, bytes: &[u8], offset: u64) -> Answer<usize> {
        let descriptor = self.descriptor(fd)?;
        if !descriptor.write || descriptor.target != Target::Node {
            return Err(Refusal::BadDescriptor);
        }
        if matches!(self.node(descriptor.node).body, Body::Null) {
            return Ok(bytes.len());
        }
        self.write_node(descriptor.node, bytes, offset)
    }

    pub(crate) fn seek(&mut self, fd: u32, delta: i64, whence: Whence) -> Answer<u64> {
        let descriptor = self.descriptor(fd)?;
        if descriptor.target != Target::Node {
            return Err(Refusal::NotSeekable);
        }
        let base = match whence {
            Whence::Start => 0,
            Whence::Here => descriptor.offset,
            Whence::End => self.size(descriptor.node),
        };
        let offset = base.checked_add_signed(delta).ok_or(Refusal::Invalid)?;
        self.descriptor_mut(fd)?.offset = offset;
        Ok(offset)
    }

    pub(crate) fn stat_descriptor(&self, fd: u32) -> Answer<Stat> {
        let descriptor = self.descriptor(fd)?;
        Ok(match descriptor.target {
            Target::Node => self.stat(descriptor.node),
            Target::Input | Target::Output(_) => Stat {
                node: 0,
                kind: Kind::Device,
                links: 1,
                size: 0,
                accessed_at: 0,
                modified_at: 0,
                changed_at: 0,
            },
        })
    }

    pub(crate) fn stat_path(&self, folder: u32, path: &str, follow: bool) -> Answer<Stat> {
        let node = self.walk(self.folder_of(folder)?, path, follow)?;
        Ok(self.stat(node))
    }

    /// Cut or lengthen; what is new reads as zeros and takes no room.
    pub(crate) fn set_size(&mut self, fd: u32, size: u64) -> Answer<()> {
        let descriptor = self.descriptor(fd)?;
        if !descriptor.write || descriptor.target != Target::Node {
            return Err(Refusal::BadDescriptor);
        }
        self.resize(descriptor.node, size)
    }

    pub(crate) fn set_times_descriptor(
        &mut self,
        fd: u32,
        accessed_at: Option<u64>,
        modified_at: Option<u64>,
    ) -> Answer<()> {
        let descriptor = self.descriptor(fd)?;
        if descriptor.target != Target::Node {
            return Err(Refusal::BadDescriptor);
        }
        self.set_times(descriptor.node, accessed_at, modified_at)
    }

    pub(crate) fn set_times_path(
        &mut self,
        folder: u32,
        path: &str,
        follow: bool,
        accessed_at: Option<u64>,
        modified_at: Option<u64>,
    ) -> Answer<()> {
        let node = self.walk(self.folder_of(folder)?, path, follow)?;
        self.set_times(node, accessed_at, modified_at)
    }

    /// Entries of an open folder behind `cookie` (0 begins), until `take` says no.
    pub(crate) fn list(
        &self,
        fd: u32,
        cookie: u64,
        mut take: impl FnMut(Entry) -> bool,
    ) -> Answer<()> {
        let here = self.folder_of(fd)?;
        let folder = self.folder(here)?;
        let dots = [(1, ".", here), (2, "..", folder.parent)];
        let dots = dots
            .into_iter()
            .filter(|(number, ..)| *number > cookie)
            .map(|(number, name, node)| (number, Arc::from(name), node));
        let named = folder
            .by_cookie
            .range(cookie.saturating_add(1)..)
            .map(|(number, (name, node))| (*number, name.clone(), *node));
        for (number, name, node) in dots.chain(named) {
            let entry = Entry {
                cookie: number,
                node: node as u64,
                kind: self.kind(node),
                name,
            };
            if !take(entry) {
                break;
            }
        }
        Ok(())
    }

    pub(crate) fn make_folder(&mut self, folder: u32, path: &str) -> Answer<()> {
        let base = self.folder_of(folder)?;
        let (parent, name) = match self.parent_of(base, path, false) {
            // Archives of `.` hold it as a folder to be made.
            Err(Refusal::Invalid) if self.walk(base, path, true).is_ok() => {
                return Err(Refusal::Exists);
            }
            found => found?,
        };
        if self.folder(parent)?.get(&name).is_some() {
            return Err(Refusal::Exists);
        }
        self.create(parent, &name, Body::Folder(Folder::new(parent)))?;
        Ok(())
    }

    pub(crate) fn remove_folder(&mut self, folder: u32, path: &str) -> Answer<()> {
        let base = self.folder_of(folder)?;
        let (parent, name) = self.parent_of(base, path, false)?;
        let node = self.folder(parent)?.get(&name).ok_or(Refusal::NoEntry)?;
        let is_empty = self.folder(node)?.by_name.is_empty();
        self.removable(parent, node)?;
        if !is_empty {
            return Err(Refusal::NotEmpty);
        }
        self.detach(parent, &name)
    }

    pub(crate) fn remove_file(&mut self, folder: u32, path: &str) -> Answer<()> {
        let base = self.folder_of(folder)?;
        let (parent, name) = self.parent_of(base, path, false)?;
        let node = self.folder(parent)?.get(&name).ok_or(Refusal::NoEntry)?;
        if self.kind(node) == Kind::Folder {
            return Err(Refusal::IsFolder);
        }
        self.detach(parent, &name)
    }

    pub(crate) fn make_link(&mut self, target: &str, folder: u32, path: &str) -> Answer<()> {
        if target.is_empty() || target.len() > PATH_BYTES_MAX {
            return Err(Refusal::Invalid);
        }
        let base = self.folder_of(folder)?;
        let (parent, name) = self.parent_of(base, path, false)?;
        if self.folder(parent)?.get(&name).is_some() {
            return Err(Refusal::Exists);
        }
        self.charge(self.node(parent).area, target.len() as u64)?;
        let area = self.node(parent).area;
        self.create(parent, &name, Body::Link(target.into()))
            .map(|_| ())
            .inspect_err(|_| self.discharge(area, target.len() as u64))
    }

    pub(crate) fn read_link(&self, folder: u32, path: &str) -> Answer<Arc<str>> {
        let node = self.walk(self.folder_of(folder)?, path, false)?;
        match &self.node(node).body {
            Body::Link(target) => Ok(target.clone()),
            _ => Err(Refusal::Invalid),
        }
    }

    /// A second name for a file.
    pub(crate) fn link(
        &mut self,
        from_folder: u32,
        from: &str,
        follow: bool,
        to_folder: u32,
        to: &str,
    ) -> Answer<()> {
        let node = self.walk(self.folder_of(from_folder)?, from, follow)?;
        if self.kind(node) == Kind::Folder {
            return Err(Refusal::NotPermitted);
        }
        let (parent, name) = self.parent_of(self.folder_of(to_folder)?, to, false)?;
        if self.folder(parent)?.get(&name).is_some() {
            return Err(Refusal::Exists);
        }
        self.writable(parent)?;
        if self.node(parent).area != self.node(node).area {
            return Err(Refusal::CrossesAreas);
        }
        self.attach(parent, &name, node);
        Ok(())
    }

    pub(crate) fn rename(
        &mut self,
        from_folder: u32,
        from: &str,
        to_folder: u32,
        to: &str,
    ) -> Answer<()> {
        let (from_parent, from_name) = self.parent_of(self.folder_of(from_folder)?, from, false)?;
        let (to_parent, to_name) = self.parent_of(self.folder_of(to_folder)?, to, false)?;
        let node = self
            .folder(from_parent)?
            .get(&from_name)
            .ok_or(Refusal::NoEntry)?;
        self.removable(from_parent, node)?;
        self.writable(to_parent)?;
        if self.node(to_parent).area != self.node(node).area {
            return Err(Refusal::CrossesAreas);
        }
        let is_folder = self.kind(node) == Kind::Folder;
        if is_folder {
            // Not into itself.
            let mut above = to_parent;
            while above != ROOT {
                if above == node {
                    return Err(Refusal::Invalid);
                }
                above = self.folder(above)?.parent;
            }
        }
        if let Some(old) = self.folder(to_parent)?.get(&to_name) {
            if old == node {
                return Ok(());
            }
            match (is_folder, self.kind(old) == Kind::Folder) {
                (true, false) => return Err(Refusal::NotFolder),
                (false, true) => return Err(Refusal::IsFolder),
                (true, true) if !self.folder(old)?.by_name.is_empty() => {
                    return Err(Refusal::NotEmpty);
                }
                _ => {}
            }
            self.detach(to_parent, &to_name)?;
        }
        self.folder_mut(from_parent)?.remove(&from_name);
        self.folder_mut(to_parent)?.insert(&to_name, node);
        if is_folder {
            self.folder_mut(node)?.parent = to_parent;
        }
        self.touch(from_parent);
        self.touch(to_parent);
        Ok(())
    }

    // Below: nodes.

    fn node(&self, node: usize) -> &Node {
        // Every number that is kept anywhere names a node that is there.
        #[expect(
            clippy::expect_used,
            reason = "nodes are freed with their last name and descriptor"
        )]
        self.nodes[node]
            .as_deref()
            .expect("a node that something names")
    }

    fn node_mut(&mut self, node: usize) -> &mut Node {
        #[expect(
            clippy::expect_used,
            reason = "nodes are freed with their last name and descriptor"
        )]
        Arc::make_mut(
            self.nodes[node]
                .as_mut()
                .expect("a node that something names"),
        )
    }

    fn folder(&self, node: usize) -> Answer<&Folder> {
        match &self.node(node).body {
            Body::Folder(folder) => Ok(folder),
            _ => Err(Refusal::NotFolder),
        }
    }

    fn folder_mut(&mut self, node: usize) -> Answer<&mut Folder> {
        match &mut self.node_mut(node).body {
            Body::Folder(folder) => Ok(folder),
            _ => Err(Refusal::NotFolder),
        }
    }

    fn kind(&self, node: usize) -> Kind {
        match self.node(node).body {
            Body::File { .. } | Body::Mounted { .. } | Body::Fixed(_) => Kind::File,
            Body::Folder(_) => Kind::Folder,
            Body::Link(_) => Kind::Link,
            Body::Null => Kind::Device,
        }
    }

    fn size(&self, node: usize) -> u64 {
        match &self.node(node).body {
            Body::File { size, .. } | Body::Mounted { size, .. } => *size,
            Body::Fixed(bytes) => bytes.len() as u64,
            Body::Link(target) => target.len() as u64,
            Body::Folder(_) | Body::Null => 0,
        }
    }

    fn stat(&self, node: usize) -> Stat {
        let found = self.node(node);
        Stat {
            node: node as u64 + 1,
            kind: self.kind(node),
            links: u64::from(found.links),
            size: self.size(node),
            accessed_at: found.accessed_at,
            modified_at: found.modified_at,
            changed_at: found.changed_at,
        }
    }

    fn put(&mut self, area: Area, body: Body) -> usize {
        let node = Some(Arc::new(Node {
            area,
            links: 0,
            opened: 0,
            accessed_at: self.now,
            modified_at: self.now,
            changed_at: self.now,
            body,
        }));
        if let Some(free) = self.free.pop() {
            self.nodes[free] = node;
            return free;
        }
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    fn attach(&mut self, parent: usize, name: &str, node: usize) {
        if let Ok(folder) = self.folder_mut(parent) {
            folder.insert(name, node);
            self.node_mut(node).links += 1;
        }
    }

    fn create(&mut self, parent: usize, name: &str, body: Body) -> Answer<usize> {
        self.writable(parent)?;
        if self.nodes.len() - self.free.len() >= NODES_MAX {
            return Err(Refusal::NoSpace);
        }
        let node = self.put(self.node(parent).area, body);
        self.attach(parent, name, node);
        self.touch(parent);
        Ok(node)
    }

    fn detach(&mut self, parent: usize, name: &str) -> Answer<()> {
        let node = self.folder(parent)?.get(name).ok_or(Refusal::NoEntry)?;
        self.removable(parent, node)?;
        self.folder_mut(parent)?.remove(name);
        self.node_mut(node).links -= 1;
        if let Ok(folder) = self.folder_mut(node) {
            // It may stay open for longer than the folder that it was in.
            folder.parent = ROOT;
        }
        self.touch(parent);
        self.release(node);
        Ok(())
    }

    /// Free a node that has neither a name nor a descriptor.
    fn release(&mut self, node: usize) {
        let found = self.node(node);
        if found.links > 0 || found.opened > 0 {
            return;
        }
        let area = found.area;
        let bytes = match &found.body {
            Body::File { pieces, .. } => pieces
                .iter()
                .flatten()
                .map(|piece| piece.len() as u64)
                .sum(),
            Body::Link(target) => target.len() as u64,
            _ => 0,
        };
        self.discharge(area, bytes);
        self.nodes[node] = None;
        self.free.push(node);
    }

    fn writable(&self, folder: usize) -> Answer<()> {
        let node = self.node(folder);
        match node.area {
            Area::System => Err(Refusal::ReadOnly),
            // Removed and still open: what came into it could never be reached or freed.
            _ if node.links == 0 => Err(Refusal::NoEntry),
            Area::Tmp | Area::Workspace => Ok(()),
        }
    }

    /// `/tmp` and `/workspace` themselves stay: their area is not that of the root they are in.
    fn removable(&self, parent: usize, node: usize) -> Answer<()> {
        self.writable(parent)?;
        if self.node(parent).area == self.node(node).area {
            Ok(())
        } else {
            Err(Refusal::NotPermitted)
        }
    }

    fn touch(&mut self, node: usize) {
        let now = self.now;
        let node = self.node_mut(node);
        node.modified_at = now;
        node.changed_at = now;
    }

    fn set_times(
        &mut self,
        node: usize,
        accessed_at: Option<u64>,
        modified_at: Option<u64>,
    ) -> Answer<()> {
        self.writable(node)?;
        let now = self.now;
        let node = self.node_mut(node);
        node.accessed_at = accessed_at.unwrap_or(node.accessed_at);
        node.modified_at = modified_at.unwrap_or(node.modified_at);
        node.changed_at = now;
        Ok(())
    }

    // Below: bytes.

    fn charge(&mut self, area: Area, bytes: u64) -> Answer<()> {
        let common = self.memory_bytes() + self.memory_bytes_elsewhere + bytes;
        let (used, limit) = match area {
            Area::System => return Err(Refusal::ReadOnly),
            Area::Tmp => (&mut self.tmp_bytes, self.limits.tmp_bytes_max),
            Area::Workspace => (&mut self.workspace_bytes, self.limits.workspace_bytes_max),
        };
        if *used + bytes > limit || common > self.limits.memory_bytes_max {
            return Err(Refusal::NoSpace);
        }
        *used += bytes;
        Ok(())
    }

    fn discharge(&mut self, area: Area, bytes: u64) {
        match area {
            Area::System => {}
            Area::Tmp => self.tmp_bytes -= bytes,
            Area::Workspace => self.workspace_bytes -= bytes,
        }
    }

    fn area_bytes_max(&self, area: Area) -> u64 {
        match area {
            Area::System => 0,
            Area::Tmp => self.limits.tmp_bytes_max,
            Area::Workspace => self.limits.workspace_bytes_max,
        }
    }

    fn write_node(&mut self, node: usize, bytes: &[u8], offset: u64) -> Answer<usize> {
        let area = self.node(node).area;
        let end = offset
            .checked_add(bytes.len() as u64)
            .ok_or(Refusal::FileTooBig)?;
        // A hole takes no room, but a file longer than its area could never be filled.
        if end > self.area_bytes_max(area) {
            return Err(if area == Area::System {
                Refusal::ReadOnly
            } else {
                Refusal::NoSpace
            });
        }
        let mut written = 0;
        while written < bytes.len() {
            let place = offset as usize + written;
            let (index, start) = (place / PIECE_BYTES, place % PIECE_BYTES);
            let count = (PIECE_BYTES - start).min(bytes.len() - written);
            let have = match &self.node(node).body {
                Body::File { pieces, .. } => pieces
                    .get(index)
                    .and_then(Option::as_ref)
                    .map_or(0, |piece| piece.len()),
                _ => return Err(Refusal::Invalid),
            };
            let need = start + count;
            if need > have {
                match self.charge(area, (need - have) as u64) {
                    Ok(()) => {}
                    Err(refusal) if written == 0 => return Err(refusal),
                    Err(_) => break,
                }
            }
            if let Body::File { size, pieces } = &mut self.node_mut(node).body {
                if pieces.len() <= index {
                    pieces.resize(index + 1, None);
                }
                let piece = Arc::make_mut(pieces[index].get_or_insert_default());
                if need > piece.len() {
                    piece.resize(need, 0);
                }
                piece[start..need].copy_from_slice(&bytes[written..written + count]);
                *size = (*size).max((place + count) as u64);
            }
            written += count;
        }
        self.touch(node);
        Ok(written)
    }

    fn resize(&mut self, node: usize, new: u64) -> Answer<()> {
        let area = self.node(node).area;
        if new > self.area_bytes_max(area) {
            return Err(Refusal::FileTooBig);
        }
        let mut freed = 0;
        match &mut self.node_mut(node).body {
            Body::File { size, pieces } => {
                let whole = (new as usize).div_ceil(PIECE_BYTES);
                for piece in pieces.drain(whole.min(pieces.len())..).flatten() {
                    freed += piece.len() as u64;
                }
                let rest = new as usize % PIECE_BYTES;
                if rest > 0
                    && let Some(Some(piece)) = pieces.get_mut(whole - 1)
                    && piece.len() > rest
                {
                    freed += (piece.len() - rest) as u64;
                    Arc::make_mut(piece).truncate(rest);
                }
                *size = new;
            }
            Body::Null => return Ok(()),
            _ => return Err(Refusal::Invalid),
        }
        self.discharge(area, freed);
        self.touch(node);
        Ok(())
    }

    // Below: descriptors and paths.

    fn descriptor_mut(&mut self, fd: u32) -> Answer<&mut Descriptor> {
        self.descriptors
            .get_mut(fd as usize)
            .and_then(Option::as_mut)
            .ok_or(Refusal::BadDescriptor)
    }

    fn free_descriptor(&mut self) -> Answer<usize> {
        if let Some(free) = self.descriptors.iter().position(Option::is_none) {
            return Ok(free);
        }
        if self.descriptors.len() >= self.limits.descriptors_max {
            return Err(Refusal::TooManyDescriptors);
        }
        self.descriptors.push(None);
        Ok(self.descriptors.len() - 1)
    }

    fn folder_of(&self, fd: u32) -> Answer<usize> {
        let descriptor = self.descriptor(fd)?;
        if descriptor.target != Target::Node {
            return Err(Refusal::NotFolder);
        }
        self.folder(descriptor.node)?;
        Ok(descriptor.node)
    }

    fn walk(&self, base: usize, path: &str, follow: bool) -> Answer<usize> {
        let mut links_left = LINKS_FOLLOWED_MAX;
        self.walk_from(base, path, follow, &mut links_left)
    }

    fn walk_from(
        &self,
        base: usize,
        path: &str,
        follow: bool,
        links_left: &mut u32,
    ) -> Answer<usize> {
        if path.is_empty() {
            return Err(Refusal::NoEntry);
        }
        if path.len() > PATH_BYTES_MAX {
            return Err(Refusal::NameTooLong);
        }
        let mut here = if path.starts_with('/') { ROOT } else { base };
        let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
        while let Some(part) = parts.next() {
            let folder = self.folder(here)?;
            let next = match part {
                "." => here,
                ".." => folder.parent,
                _ if part.len() > NAME_BYTES_MAX => return Err(Refusal::NameTooLong),
                _ => folder.get(part).ok_or(Refusal::NoEntry)?,
            };
            let last = parts.peek().is_none();
            here = match &self.node(next).body {
                Body::Link(target) if !last || follow || path.ends_with('/') => {
                    *links_left = links_left.checked_sub(1).ok_or(Refusal::Loop)?;
                    self.walk_from(here, target, true, links_left)?
                }
                _ => next,
            };
        }
        if path.ends_with('/') {
            self.folder(here)?;
        }
        Ok(here)
    }

    /// The folder and the name under which `path` would be made. With `follow`, a dangling link at
    /// its end leads on to the name it points to.
    fn parent_of(&self, base: usize, path: &str, follow: bool) -> Answer<(usize, String)> {
        let mut base = base;
        let mut path = path.to_owned();
        for _ in 0..LINKS_FOLLOWED_MAX {
            let trimmed = path.trim_end_matches('/');
            let (parent, name) = trimmed
                .rsplit_once('/')
                .map_or(("", trimmed), |(parent, name)| {
                    (if parent.is_empty() { "/" } else { parent }, name)
                });
            match name {
                "" => return Err(Refusal::NoEntry),
                "." | ".." => return Err(Refusal::Invalid),
                _ if name.len() > NAME_BYTES_MAX => return Err(Refusal::NameTooLong),
                _ => {}
            }
            let parent = if parent.is_empty() {
                base
            } else {
                self.walk(base, parent, true)?
            };
            let target = self
                .folder(parent)?
                .get(name)
                .map(|node| &self.node(node).body);
            match target {
                Some(Body::Link(target)) if follow => {
                    (base, path) = (parent, target.to_string());
                }
                _ => return Ok((parent, name.to_owned())),
            }
        }
        Err(Refusal::Loop)
    }
}

impl Descriptor {
    fn stream(target: Target) -> Self {
        Self {
            target,
            read: target == Target::Input,
            write: target != Target::Input,
            append: false,
            node: ROOT,
            offset: 0,
        }
    }
}

/// From where a seek counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whence {
    Start,
    Here,
    End,
}

fn read_pieces(pieces: &[Option<Arc<Vec<u8>>>], size: u64, out: &mut [u8], offset: u64) -> usize {
    let left = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX);
    let count = out.len().min(left);
    let mut done = 0;
    while done < count {
        let place = offset as usize + done;
        let (index, start) = (place / PIECE_BYTES, place % PIECE_BYTES);
        let part = &mut out[done..count];
        let part_len = part.len().min(PIECE_BYTES - start);
        let part = &mut part[..part_len];
        let piece = pieces.get(index).and_then(Option::as_ref);
        let have = piece.map_or(&[][..], |piece| piece.get(start..).unwrap_or_default());
        let kept = part_len.min(have.len());
        part[..kept].copy_from_slice(&have[..kept]);
        part[kept..].fill(0);
        done += part_len;
    }
    count
}

#[cfg(unix)]
fn read_mounted(file: &File, out: &mut [u8], offset: u64) -> std::io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, out, offset)
}

#[cfg(windows)]
fn read_mounted(file: &File, out: &mut [u8], offset: u64) -> std::io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, out, offset)
}

#[cfg(test)]
mod tests;
