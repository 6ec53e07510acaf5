//! The files on both ends of the queue: those to sum, and the list of sums.

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::{ffi::OsStrExt, fs::MetadataExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use walkdir::{DirEntry, WalkDir};

/// Sums by path. They are in the file `OUT.partial` too, in the form of `sha256sum --zero`.
pub(crate) struct List {
    dir: PathBuf,
    out: PathBuf,
    partial: File,
    sums: BTreeMap<PathBuf, String>,
    /// Device and inode of our own files, which are not summed.
    own: HashSet<(u64, u64)>,
    all_seen: bool,
}

impl List {
    /// Goes on with the list of an earlier run, or starts one.
    pub(crate) fn open(dir: PathBuf, out: PathBuf) -> io::Result<Self> {
        dir.read_dir().map_err(|error| at(&dir, &error))?;
        let path = beside(&out, ".partial");
        let open = OpenOptions::new().read(true).append(true).create(true).open(&path);
        let mut partial = open.map_err(|error| at(&path, &error))?;
        // Two runs would each finish the list without the other's sums.
        partial.try_lock().map_err(|error| at(&path, &error.into()))?;
        let mut text = Vec::new();
        partial.read_to_end(&mut text)?;
        // A kill can leave half an entry at the end.
        text.truncate(text.iter().rposition(|byte| *byte == 0).map_or(0, |end| end + 1));
        partial.set_len(text.len() as u64)?;
        let sums: BTreeMap<_, _> = text.split(|byte| *byte == 0).filter_map(parse).collect();
        let mut list = Self { dir, out, partial, sums, own: HashSet::new(), all_seen: true };
        list.leave_out([list.out.clone(), path, beside(&list.out, ".new")]);
        list.sums.keys().try_for_each(|path| list.has(path).map(drop))?;
        Ok(list)
    }

    /// Files that are not to be summed, where they exist.
    pub(crate) fn leave_out(&mut self, own: impl IntoIterator<Item = PathBuf>) {
        self.own.extend(own.into_iter().filter_map(|path| path.metadata().ok()).map(|m| (m.dev(), m.ino())));
    }

    /// The files that are not done: regular ones and links to such. A link that leads nowhere is among them, so that it is
    /// missed when it is read. A directory that cannot be read is told and passed over.
    pub(crate) fn walk(&mut self) -> impl Iterator<Item = PathBuf> {
        let Self { dir, sums, own, all_seen, .. } = self;
        let entries = WalkDir::new(dir).into_iter().filter_map(|entry| {
            let tell = |error: &walkdir::Error| {
                eprintln!("quickstart: {error}");
                *all_seen = false;
            };
            entry.inspect_err(tell).ok()
        });
        entries.map(DirEntry::into_path).filter(|path| {
            path.metadata().map_or(true, |m| m.is_file() && !own.contains(&(m.dev(), m.ino())))
                && !sums.contains_key(path)
        })
    }

    pub(crate) fn len(&self) -> u64 {
        self.sums.len() as u64
    }

    /// Whether the file is done. One of another directory is an error: the list would mix both.
    pub(crate) fn has(&self, path: &Path) -> io::Result<bool> {
        if path.starts_with(&self.dir) {
            return Ok(self.sums.contains_key(path));
        }
        let unfinished = "the list and queue are of another directory: finish that first, or delete both";
        Err(at(path, &io::Error::other(unfinished)))
    }

    /// Adds a sum. A kill cannot take it any more, but a power cut can until [`sync`](Self::sync).
    pub(crate) fn add(&mut self, path: PathBuf, sum: String) -> io::Result<()> {
        self.partial.write_all(&entry(&sum, bytes(&path), 0))?;
        self.sums.insert(path, sum);
        Ok(())
    }

    /// Puts on the disk what was added.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.partial.sync_data()
    }

    /// Writes the list, sorted, in the place of an older one. What was kept for going on goes away once all is done. Answers
    /// whether all directories could be read.
    pub(crate) fn finish(&self, all_done: bool) -> io::Result<bool> {
        let new = beside(&self.out, ".new");
        let mut file = BufWriter::new(File::create(&new)?);
        self.sums.iter().try_for_each(|(path, sum)| file.write_all(&line(path, sum)))?;
        file.into_inner()?.sync_all()?;
        fs::rename(&new, &self.out)?;
        if all_done {
            fs::remove_file(beside(&self.out, ".partial"))?;
        }
        Ok(self.all_seen)
    }
}

/// The path with something added to its name.
pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    [path.as_os_str(), OsStr::new(ending)].into_iter().collect::<std::ffi::OsString>().into()
}

/// The sum of a file, in hexadecimal. Holds only a piece of the file at a time.
pub(crate) fn sum(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut sha256 = Sha256::new();
    let mut piece = vec![0; 64 << 10];
    loop {
        match file.read(&mut piece)? {
            0 => {
                return Ok(sha256
                    .finalize()
                    .iter()
                    .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}")));
            }
            length => sha256.update(piece.get(..length).unwrap_or_default()),
        }
    }
}

fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn entry(sum: &str, name: &[u8], end: u8) -> Vec<u8> {
    [sum.as_bytes(), b"  ", name, &[end]].concat()
}

fn parse(entry: &[u8]) -> Option<(PathBuf, String)> {
    let (sum, name) = entry.split_at_checked(64)?;
    Some((OsStr::from_bytes(name.strip_prefix(b"  ")?).into(), str::from_utf8(sum).ok()?.to_owned()))
}

/// As sha256sum prints it: a name with a backslash or the end of a line is escaped, and a backslash before the sum says so.
fn line(path: &Path, sum: &str) -> Vec<u8> {
    let escape = |byte: &u8| match byte {
        b'\\' => vec![b'\\', b'\\'],
        b'\n' => vec![b'\\', b'n'],
        b'\r' => vec![b'\\', b'r'],
        other => vec![*other],
    };
    let name: Vec<u8> = bytes(path).iter().flat_map(escape).collect();
    let mark = if name.len() > bytes(path).len() { "\\" } else { "" };
    entry(&format!("{mark}{sum}"), &name, b'\n')
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
