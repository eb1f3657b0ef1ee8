//! Releases of hook source: immutable snapshots, named by what is in them (klbr-protocol(7)).
//!
//! Reads and writes only the folders that it is given.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::cell::HookSlot;
use crate::id::Digest;
use crate::limits::{RELEASE_BYTES_MAX, RELEASE_FILES_MAX};

/// The file that names a release's entrypoints.
pub const MANIFEST: &str = "manifest.json";
/// The kinds of file that a release is made of.
const SUFFIXES: &[&str] = &["py", "json", "md"];
/// What an interpreter leaves in a folder that it imported from.
const CACHE: &str = "__pycache__";

/// Why a folder is not a release.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// Something cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// What.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Something cannot be written.
    #[error("cannot write {path}")]
    Write {
        /// What.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Neither a file nor a folder.
    #[error("{0} is a symbolic link or a special file; a release has files and folders only")]
    NotAFile(PathBuf),
    /// A name that is not text.
    #[error("{0} has a name that is not UTF-8")]
    Name(PathBuf),
    /// A file of another kind.
    #[error("{0} does not belong into a release: only .py, .json and .md files do")]
    Kind(PathBuf),
    /// More files than [`RELEASE_FILES_MAX`].
    #[error("{0} has more than {RELEASE_FILES_MAX} files")]
    TooManyFiles(PathBuf),
    /// More bytes than [`RELEASE_BYTES_MAX`].
    #[error("{0} has more than {RELEASE_BYTES_MAX} bytes")]
    TooLarge(PathBuf),
    /// The manifest is not one.
    #[error("{path}: {problem}")]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// A release of this name is there, and has other content.
    #[error("{path} is not what its name says: its content is {found}; remove it, it is damaged")]
    Damaged {
        /// The release.
        path: PathBuf,
        /// The digest of its content.
        found: Digest,
    },
}

/// What a release answers for. Version 1, with exactly the two slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The function of each slot, as `module:function`.
    pub hooks: BTreeMap<HookSlot, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawManifest {
    version: u64,
    hooks: BTreeMap<HookSlot, String>,
}

impl Manifest {
    /// Reads the manifest of a release.
    pub fn read(release: &Path) -> Result<Self, ReleaseError> {
        let path = release.join(MANIFEST);
        let text = fs::read_to_string(&path).map_err(reading(&path))?;
        Self::parse(&text).map_err(|problem| ReleaseError::Manifest { path, problem })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let raw: RawManifest = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if raw.version != 1 {
            return Err(format!("its version is {}, this program knows 1", raw.version));
        }
        for slot in HookSlot::ALL {
            let Some(entrypoint) = raw.hooks.get(&slot) else {
                return Err(format!("it has no entrypoint for {}", slot.as_str()));
            };
            if !is_entrypoint(entrypoint) {
                return Err(format!("{entrypoint:?} is not `module:function`"));
            }
        }
        Ok(Self { hooks: raw.hooks })
    }
}

fn is_entrypoint(text: &str) -> bool {
    let name = |part: &str| {
        !part.is_empty()
            && !part.starts_with(|c: char| c.is_ascii_digit())
            && part.chars().all(|c| c.is_alphanumeric() || c == '_')
    };
    text.split_once(':').is_some_and(|(module, function)| module.split('.').all(name) && name(function))
}

/// The identity of a release: the digest of its file names and contents.
///
/// For each file, in the order of its `/`-separated relative name: length of the name (u64,
/// big-endian), the name, length of the content, the content.
pub fn identity(folder: &Path) -> Result<Digest, ReleaseError> {
    Ok(digest_of(&read_files(folder)?))
}

/// Copies a folder to `releases/<digest>` and names it. A release that is there already is checked
/// and left alone; one that appears is whole or not there.
pub fn snapshot(source: &Path, releases: &Path) -> Result<(Digest, PathBuf), ReleaseError> {
    let files = read_files(source)?;
    let digest = digest_of(&files);
    let target = releases.join(digest.as_str());
    if target.exists() {
        let found = identity(&target)?;
        if found != digest {
            return Err(ReleaseError::Damaged { path: target, found });
        }
        return Ok((digest, target));
    }
    let draft = releases.join(format!(".{digest}.{}", std::process::id()));
    // Left over from a process of the same number that died.
    let _ = fs::remove_dir_all(&draft);
    let written = write_files(&files, &draft).and_then(|()| match fs::rename(&draft, &target) {
        // Somebody else made the same release meanwhile.
        Err(_) if target.exists() => Ok(()),
        renamed => renamed.map_err(writing(&target)),
    });
    // Gone by the rename where all went well.
    let _ = fs::remove_dir_all(&draft);
    written?;
    Ok((digest, target))
}

type Files = BTreeMap<String, Vec<u8>>;

fn digest_of(files: &Files) -> Digest {
    let mut hasher = Sha256::new();
    for (name, content) in files {
        for part in [name.as_bytes(), content.as_slice()] {
            hasher.update((part.len() as u64).to_be_bytes());
            hasher.update(part);
        }
    }
    Digest::from_sha256(&hasher.finalize().into())
}

/// Every file by its relative name; a `BTreeMap` of strings is in the order of their bytes.
fn read_files(folder: &Path) -> Result<Files, ReleaseError> {
    let mut files = Files::new();
    let mut bytes = 0;
    let mut open = vec![(folder.to_owned(), String::new())];
    while let Some((path, prefix)) = open.pop() {
        for entry in fs::read_dir(&path).map_err(reading(&path))? {
            let entry = entry.map_err(reading(&path))?;
            let path = entry.path();
            let name = entry.file_name().into_string().map_err(|_| ReleaseError::Name(path.clone()))?;
            let kind = entry.file_type().map_err(reading(&path))?;
            if kind.is_dir() {
                if name != CACHE {
                    open.push((path, format!("{prefix}{name}/")));
                }
                continue;
            }
            if !kind.is_file() {
                return Err(ReleaseError::NotAFile(path));
            }
            let suffix = path.extension().and_then(|suffix| suffix.to_str());
            if !suffix.is_some_and(|suffix| SUFFIXES.contains(&suffix)) {
                return Err(ReleaseError::Kind(path));
            }
            if files.len() == RELEASE_FILES_MAX {
                return Err(ReleaseError::TooManyFiles(folder.to_owned()));
            }
            bytes += entry.metadata().map_err(reading(&path))?.len();
            if bytes > RELEASE_BYTES_MAX {
                return Err(ReleaseError::TooLarge(folder.to_owned()));
            }
            files.insert(format!("{prefix}{name}"), fs::read(&path).map_err(reading(&path))?);
        }
    }
    Ok(files)
}

/// A release is no secret from the workers that run it, who may be another user. The data directory
/// around it is closed.
fn write_files(files: &Files, folder: &Path) -> Result<(), ReleaseError> {
    let permit = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    let make = |path: &Path| {
        if path.is_dir() {
            return Ok(());
        }
        fs::create_dir_all(path).and_then(|()| permit(path, 0o755))
    };
    make(folder).map_err(writing(folder))?;
    for (name, content) in files {
        let path = folder.join(name);
        if let Some(parent) = path.parent() {
            make(parent).map_err(writing(parent))?;
        }
        fs::File::options()
            .write(true)
            .create_new(true)
            .mode(0o400)
            .open(&path)
            .and_then(|mut file| file.write_all(content).and_then(|()| file.sync_all()))
            .and_then(|()| permit(&path, 0o444))
            .map_err(writing(&path))?;
    }
    Ok(())
}

fn reading(path: &Path) -> impl Fn(std::io::Error) -> ReleaseError {
    let path = path.to_owned();
    move |source| ReleaseError::Read { path: path.clone(), source }
}

fn writing(path: &Path) -> impl Fn(std::io::Error) -> ReleaseError {
    let path = path.to_owned();
    move |source| ReleaseError::Write { path: path.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        folder
    }

    #[test]
    fn the_identity_is_the_one_of_the_shared_fixture() {
        let text = include_str!("../tests/runtime-fixtures/behavior.json");
        let fixture: serde_json::Value = serde_json::from_str(text).unwrap();
        let files: Vec<(&str, &str)> = fixture["files"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, content)| (name.as_str(), content.as_str().unwrap()))
            .collect();
        let release = folder(&files);
        fs::create_dir(release.path().join(CACHE)).unwrap();
        fs::write(release.path().join(CACHE).join("x.pyc"), "cache").unwrap();

        assert_eq!(identity(release.path()).unwrap().as_str(), fixture["digest"].as_str().unwrap());
    }

    #[test]
    fn what_does_not_belong_into_a_release_is_named() {
        let odd = folder(&[("a.py", ""), ("b.so", "")]);
        assert!(matches!(identity(odd.path()), Err(ReleaseError::Kind(path)) if path.ends_with("b.so")));
        let linked = folder(&[("a.py", "")]);
        std::os::unix::fs::symlink("a.py", linked.path().join("b.py")).unwrap();
        assert!(matches!(identity(linked.path()), Err(ReleaseError::NotAFile(_))));
    }

    #[test]
    fn both_bounds_have_two_sides() {
        let many = folder(&[]);
        for number in 0..RELEASE_FILES_MAX {
            fs::write(many.path().join(format!("{number}.py")), "").unwrap();
        }
        assert!(identity(many.path()).is_ok());
        fs::write(many.path().join("more.py"), "").unwrap();
        assert!(matches!(identity(many.path()), Err(ReleaseError::TooManyFiles(_))));

        let full = usize::try_from(RELEASE_BYTES_MAX).unwrap();
        let large = folder(&[("a.py", &"#".repeat(full))]);
        assert!(identity(large.path()).is_ok());
        fs::write(large.path().join("b.py"), "#").unwrap();
        assert!(matches!(identity(large.path()), Err(ReleaseError::TooLarge(_))));
    }

    #[test]
    fn a_snapshot_is_what_it_was_made_of_and_is_made_once() {
        let (source, releases) = (folder(&[("a/b.py", "x = 1\n"), (MANIFEST, "{}")]), folder(&[]));
        let (digest, path) = snapshot(source.path(), releases.path()).unwrap();
        assert_eq!(identity(&path).unwrap(), digest);
        assert_eq!(snapshot(source.path(), releases.path()).unwrap(), (digest, path.clone()));
        assert_eq!(fs::read_dir(releases.path()).unwrap().count(), 1);

        fs::write(path.join("more.py"), "").unwrap();
        assert!(matches!(snapshot(source.path(), releases.path()), Err(ReleaseError::Damaged { .. })));
    }

    #[test]
    fn a_manifest_has_exactly_the_two_slots() {
        let good = r#"{"version":1,"hooks":{"attention.plan":"a.b:c","delivery.review":"d:e"}}"#;
        assert_eq!(Manifest::parse(good).unwrap().hooks[&HookSlot::DeliveryReview], "d:e");
        for bad in [
            good.replace('1', "2"),
            good.replace("a.b:c", "a.b"),
            good.replace("a.b:c", ":c"),
            good.replace("\"d:e\"}", "\"d:e\",\"x.y\":\"f:g\"}"),
            good.replace("attention.plan", "delivery.review"),
            good.replace("\"version\":1,", "\"version\":1,\"more\":0,"),
        ] {
            assert!(Manifest::parse(&bad).is_err(), "{bad}");
        }
    }
}
