//! `fiber cp`: copies files as a stream of tar, between hosts and volumes in any direction.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use anyhow::{Context, anyhow, bail};
use fiber_backends::Step;
use fiber_backends::cluster::archive::{drain, pack, rename, unpack};
use fiber_backends::cluster::{Cluster, Volume, VolumeKind};
use fiber_core::{Signals, on_a_thread, random};
use futures_util::TryStreamExt;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::io::{ReaderStream, SyncIoBridge};

use crate::args::ClusterArgs;
use crate::progress::{Spinner, Spinners};
use crate::{connect, hex, killed_by};

/// The size in bytes of the buffer for an archive.
const PIPE: usize = 256 << 10;

/// The source or target of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CopyPath {
    /// A path of this host.
    Host(PathBuf),
    /// A path in a volume, which begins with `/`.
    Volume { claim: String, path: String },
}

/// Parses source and target.
fn copy_paths(source: &str, target: &str) -> anyhow::Result<(CopyPath, CopyPath)> {
    let copy_paths = (copy_path(source)?, copy_path(target)?);
    if let (CopyPath::Host(_), CopyPath::Host(_)) = copy_paths {
        bail!(
            "neither `{source}` nor `{target}` is in a volume: write one as CLAIM:/PATH (`cp` \
             copies on this host)"
        );
    }
    Ok(copy_paths)
}

fn copy_path(text: &str) -> anyhow::Result<CopyPath> {
    match text.split_once(':') {
        Some((claim, path)) if !claim.contains('/') => {
            if claim.is_empty()
                || !path.starts_with('/')
                || path.split('/').any(|part| part == "..")
            {
                bail!(
                    "`{text}` is no path in a volume: write CLAIM:/PATH, where CLAIM is the name \
                     of a volume (or `./{text}` for a file of this name)"
                );
            }
            Ok(CopyPath::Volume { claim: claim.into(), path: path.into() })
        }
        _ if text.is_empty() => bail!("the path is empty"),
        _ => Ok(CopyPath::Host(text.into())),
    }
}

pub(crate) async fn copy(
    args: &ClusterArgs,
    source: &str,
    target: &str,
) -> anyhow::Result<ExitCode> {
    // Wrong paths are refused before connecting to an engine.
    let (source, target) = copy_paths(source, target)?;
    let cluster = &*connect(args).await?;
    let mut signals = Signals::listen().context("signal handlers can't be installed")?;
    let mut step = Spinner::begin(&format!("copying {source} to {target}"));
    let session = hex(&random::<6>());
    let copied = tokio::select! {
        copied = open_and_copy(cluster, &session, &source, &target, &mut step) => {
            copied.map(|()| ExitCode::SUCCESS)
        }
        signal = signals.next() => Ok(ExitCode::from(killed_by(signal))),
    };
    // However the copy ended, nothing may stay behind.
    let discarded = cluster.remove_session(&session).await;
    let code = copied?;
    discarded?;
    if code == ExitCode::SUCCESS {
        Box::new(step).done();
    }
    Ok(code)
}

async fn open_and_copy(
    cluster: &dyn Cluster,
    session: &str,
    source: &CopyPath,
    target: &CopyPath,
    step: &mut Spinner,
) -> anyhow::Result<()> {
    if let CopyPath::Host(path) = source {
        std::fs::symlink_metadata(path)
            .map_err(|error| anyhow!("`{}` can't be read: {error}", path.display()))?;
    }
    let source = OpenPath::open(source, cluster, session).await?;
    let target = OpenPath::open(target, cluster, session).await?;
    source.copy_to(&target, step).await
}

/// A path with its open volume.
#[derive(Clone)]
enum OpenPath<'a> {
    Host(&'a Path),
    Volume { volume: Rc<dyn Volume + 'a>, claim: &'a str, path: &'a str },
}

impl<'a> OpenPath<'a> {
    async fn open(
        side: &'a CopyPath,
        cluster: &'a dyn Cluster,
        session: &'a str,
    ) -> anyhow::Result<OpenPath<'a>> {
        Ok(match side {
            CopyPath::Host(path) => OpenPath::Host(path),
            CopyPath::Volume { claim, path } => {
                let volume = cluster.volume(claim, session, &Spinners).await?;
                OpenPath::Volume { volume: volume.into(), claim, path }
            }
        })
    }

    async fn kind(&self) -> anyhow::Result<Option<VolumeKind>> {
        Ok(match self {
            OpenPath::Host(path) => match std::fs::metadata(path) {
                Ok(metadata) if metadata.is_dir() => Some(VolumeKind::Directory),
                Ok(_) => Some(VolumeKind::File),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => bail!("`{}` can't be read: {error}", path.display()),
            },
            OpenPath::Volume { volume, path, .. } => volume.kind(path).await?,
        })
    }

    /// Returns the parent directory, and the name in it.
    fn split(&self) -> (OpenPath<'a>, String) {
        match *self {
            OpenPath::Host(path) => {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                (OpenPath::Host(parent.unwrap_or(Path::new("."))), name)
            }
            OpenPath::Volume { ref volume, claim, path } => {
                let path = path.trim_end_matches('/');
                let (parent, name) = path.rsplit_once('/').unwrap_or(("", ""));
                let path = if parent.is_empty() { "/" } else { parent };
                (OpenPath::Volume { volume: Rc::clone(volume), claim, path }, name.into())
            }
        }
    }

    /// Returns the name of a copy in a directory.
    fn name(&self) -> anyhow::Result<String> {
        let name = match *self {
            // `.` and `..` stand for directories with names.
            OpenPath::Host(path) => std::fs::canonicalize(path)
                .ok()
                .filter(|_| path.file_name().is_none())
                .and_then(|real| real.file_name().map(|name| name.to_string_lossy().into_owned()))
                .unwrap_or_else(|| self.split().1),
            OpenPath::Volume { claim, .. } => match self.split().1 {
                name if name.is_empty() => claim.to_string(),
                name => name,
            },
        };
        if name.is_empty() {
            bail!("{self} has no name for its copy: name the target")
        } else {
            Ok(name)
        }
    }

    async fn copy_to(&self, target: &OpenPath<'_>, step: &mut Spinner) -> anyhow::Result<()> {
        let Some(kind) = self.kind().await? else { bail!("there is no file {self}") };
        let (directory, name) = match target.kind().await? {
            Some(VolumeKind::Directory) => (target.clone(), self.name()?),
            Some(VolumeKind::File) if kind == VolumeKind::Directory => {
                bail!("{self} is a directory, but {target} is none")
            }
            Some(VolumeKind::File) => target.split(),
            None if target.to_string().ends_with('/') => bail!("there is no directory {target}"),
            None => target.split(),
        };
        if directory.kind().await? != Some(VolumeKind::Directory) {
            bail!("there is no directory {directory}");
        }
        let (archive, renamed) = (tokio::io::duplex(PIPE), tokio::io::duplex(PIPE));
        let ((archive_in, archive_out), (renamed_in, renamed_out)) = (archive, renamed);
        let renaming = blocking(move || {
            rename(SyncIoBridge::new(archive_out), SyncIoBridge::new(renamed_in), Path::new(&name))
        });
        // Each of the three fails when a neighbour does. The error that is no broken pipe comes
        // first: it is the cause.
        let (read, renamed, written) =
            tokio::join!(self.read(archive_in, step), renaming, directory.write(renamed_out));
        let broken = |error: &anyhow::Error| {
            let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
            matches!(kind, Some(io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof))
        };
        let mut results = vec![read, renamed, written];
        results.sort_by_key(|result| result.as_ref().err().is_none_or(broken));
        results
            .into_iter()
            .find(Result::is_err)
            .unwrap_or(Ok(()))
            .with_context(|| format!("{self} was not copied"))
    }

    async fn read(
        &self,
        mut archive: impl AsyncWrite + Unpin + Send + 'static,
        step: &mut Spinner,
    ) -> anyhow::Result<()> {
        match *self {
            OpenPath::Host(path) => {
                let path = path.to_path_buf();
                blocking(move || pack(&path, SyncIoBridge::new(archive))).await
            }
            OpenPath::Volume { ref volume, path, .. } => {
                let mut chunks = volume.read(path);
                let mut bytes = 0u64;
                while let Some(chunk) = chunks.try_next().await? {
                    bytes += chunk.len() as u64;
                    step.detail(&bytesize::ByteSize(bytes).to_string());
                    tokio::io::AsyncWriteExt::write_all(&mut archive, &chunk).await?;
                }
                Ok(())
            }
        }
    }

    async fn write(&self, archive: impl AsyncRead + Unpin + Send + 'static) -> anyhow::Result<()> {
        match *self {
            OpenPath::Host(path) => {
                let path = path.to_path_buf();
                blocking(move || {
                    let mut archive = SyncIoBridge::new(archive);
                    unpack(&mut archive, &path)?;
                    drain(archive)
                })
                .await
            }
            OpenPath::Volume { ref volume, path, .. } => {
                let parts = ReaderStream::with_capacity(archive, 64 << 10);
                Ok(volume.write(path, Box::pin(parts)).await?)
            }
        }
    }
}

async fn blocking(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> anyhow::Result<()> {
    Ok(on_a_thread(work).await??)
}

impl fmt::Display for CopyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CopyPath::Host(path) => write!(f, "{}", path.display()),
            CopyPath::Volume { claim, path } => write!(f, "{claim}:{path}"),
        }
    }
}

impl fmt::Display for OpenPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenPath::Host(path) => write!(f, "{}", path.display()),
            OpenPath::Volume { claim, path, .. } => write!(f, "{claim}:{path}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(claim: &str, path: &str) -> CopyPath {
        CopyPath::Volume { claim: claim.into(), path: path.into() }
    }

    #[test]
    fn paths_in_volumes_are_distinguished_from_files() {
        assert_eq!(
            copy_paths("nfs:/a/b", "c").unwrap(),
            (volume("nfs", "/a/b"), CopyPath::Host("c".into()))
        );
        assert_eq!(
            copy_paths("./a:b", "nfs:/").unwrap(),
            (CopyPath::Host("./a:b".into()), volume("nfs", "/"))
        );
        assert_eq!(copy_paths("a:/x", "b:/y").unwrap(), (volume("a", "/x"), volume("b", "/y")));
        assert!(copy_paths("a", "b").unwrap_err().to_string().contains("CLAIM:/PATH"));
        for wrong in ["nfs:a", ":/a", "nfs:", "nfs:/a/../b", ""] {
            assert!(copy_paths(wrong, "nfs:/").is_err(), "{wrong}");
        }
    }
}
