//! Persistent volume claims, read and written through a pod that mounts the claim. It runs this
//! very program, which serves the volume.

use std::io;

use bytes::Bytes;
use fiber_core::{Config, Error, Meta, Result, random};
use futures_util::future::{LocalBoxFuture, ready};
use futures_util::stream::{self, BoxStream, LocalBoxStream};
use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{AttachParams, AttachedProcess, ListParams};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio_util::io::ReaderStream;

use super::api_server::{ApiServer, is_missing};
use super::current_pod::CurrentPod;
use super::image;
use super::names::{self, CONTAINER, labels};
use super::pod_template::{PodRequest, PodTemplate};
use super::startup::{self, Start, StartTimeouts};
use crate::BackendError;
use crate::cluster::volume::{Volume, VolumeKind, missing};
use crate::owner::JobOwner;
use crate::progress::Progress;

/// The mount path of the volume in the pod.
const ROOT: &str = "/volume";
/// The subcommand with which this program serves a volume.
const SERVE: &str = "serve-volume";
/// The size in bytes of the buffer for an archive.
const PIPE: usize = 256 << 10;

/// Fails if there is no such claim.
///
/// # Errors
/// It does not exist, with the names of those that do.
pub(super) async fn must_exist(server: &ApiServer, claim: &str) -> Result<(), BackendError> {
    let claims = server.api::<PersistentVolumeClaim>();
    match claims.get(claim).await {
        Ok(_) => Ok(()),
        Err(error) if is_missing(&error) => {
            let listed = claims
                .list_metadata(&ListParams::default())
                .await
                .map(|list| list.items)
                .unwrap_or_default();
            let names: Vec<_> =
                listed.into_iter().filter_map(|claim| claim.metadata.name).collect();
            let remedy = format!(
                "the namespace `{}` has no persistent volume claim of this name; correct it, or \
                 create the claim (`kubectl get pvc` lists them)",
                server.namespace()
            );
            Err(missing(claim, &remedy, &names))
        }
        Err(error) => Err(server.explain(&error)),
    }
}

/// A pod that mounts a claim.
#[derive(Debug)]
pub(super) struct Helper<'a> {
    server: &'a ApiServer,
    claim: String,
    pod: String,
    program: String,
}

impl<'a> Helper<'a> {
    pub(super) async fn start(
        server: &'a ApiServer,
        config: &Config,
        own: Option<&CurrentPod>,
        claim: &str,
        session: &str,
        progress: &dyn Progress,
    ) -> Result<Helper<'a>, BackendError> {
        must_exist(server, claim).await?;
        // The image of this very program: another program does not serve volumes.
        let mut plain = config.clone();
        (plain.image, plain.program, plain.mounts) = (None, None, vec![format!("{claim}:{ROOT}")]);
        let image = image::find(&plain, own, progress).await?;
        let program = image.program.clone().unwrap_or_default();
        let name = format!("fiber-{session}-cp-{}", u32::from_le_bytes(random()));
        let owner = own.map_or_else(JobOwner::this_process, |own| Ok(own.owner()))?;
        let template = PodTemplate::inheriting(&plain, image, own);
        let template = template.map_err(|problem| problem.to_string())?;
        let pod = template.pod(PodRequest {
            name: name.clone(),
            labels: labels(session, &names::program(), "cp"),
            // This process owns it: if it is killed, the next sweep removes the pod.
            annotations: names::annotations(&owner, &format!("cp {claim}"), 0),
            arguments: vec![SERVE.into(), "hold".into()],
            ..Default::default()
        });
        let created = server.create_new(&pod).await;
        created.map_err(|error| server.explain(&error))?;
        let helper = Helper { server, claim: claim.to_string(), pod: name, program };
        let timeouts = StartTimeouts::of(config);
        let (pod, meta) = (&helper.pod, Meta::new());
        match startup::wait_until_running(server, pod, &meta, timeouts, true, progress).await? {
            Start::Seen => Ok(helper),
            Start::Unseen(error) => Err(server.explain(&error)),
        }
    }

    /// Runs a command of the program in the pod.
    async fn execute(&self, what: &str, path: &str, stdin: bool) -> Result<AttachedProcess, Error> {
        let path = format!("{ROOT}/{}", path.trim_start_matches('/'));
        let command = [self.program.as_str(), SERVE, what, path.trim_end_matches('/')];
        let parameters = AttachParams::default()
            .container(CONTAINER)
            .stdin(stdin)
            .stdout(true)
            .stderr(true)
            .max_stdin_buf_size(PIPE)
            .max_stdout_buf_size(PIPE);
        let asked = self.server.streams::<Pod>().exec(&self.pod, command, &parameters).await;
        asked.map_err(|error| {
            Error::system(self.place(path.trim_start_matches(ROOT)), self.server.explain(&error))
        })
    }

    fn place(&self, path: &str) -> String {
        format!("`{}:/{}`", self.claim, path.trim_start_matches('/'))
    }

    /// Waits for the end of a command.
    async fn end(&self, path: &str, mut process: AttachedProcess) -> Result<()> {
        let complaints = text(process.stderr()).await;
        let status = match process.take_status() {
            Some(status) => status.await,
            None => None,
        };
        let succeeded =
            status.as_ref().is_some_and(|status| status.status.as_deref() == Some("Success"));
        if succeeded {
            return Ok(());
        }
        let complaint = complaints.trim().trim_start_matches("error: ");
        let problem = match (complaint, status.and_then(|status| status.message)) {
            ("", Some(message)) => message,
            ("", None) => "the connection to the API server broke".to_string(),
            (complaint, _) => complaint.to_string(),
        };
        Err(Error::system(self.place(path), problem))
    }
}

async fn text(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut text = Vec::new();
    if let Some(mut stream) = stream {
        // After an error, the text up to it is all there is.
        let _ = stream.read_to_end(&mut text).await;
    }
    // Files may have any names.
    String::from_utf8_lossy(&text).into_owned()
}

impl Volume for Helper<'_> {
    fn kind<'a>(&'a self, path: &'a str) -> LocalBoxFuture<'a, Result<Option<VolumeKind>>> {
        Box::pin(async move {
            let mut process = self.execute("kind", path, false).await?;
            let output = text(process.stdout()).await;
            self.end(path, process).await?;
            Ok(match output.trim() {
                "directory" => Some(VolumeKind::Directory),
                "file" => Some(VolumeKind::File),
                _ => None,
            })
        })
    }

    fn read<'a>(&'a self, path: &'a str) -> LocalBoxStream<'a, Result<Bytes>> {
        let opened = async move {
            let mut process = self.execute("read", path, false).await?;
            let out = process.stdout().map(|out| ReaderStream::with_capacity(out, PIPE));
            let parts = stream::iter(out).flatten();
            let parts = parts.map_err(move |error| Error::system(self.place(path), error));
            let end = stream::once(self.end(path, process)).try_filter_map(|()| ready(Ok(None)));
            Ok::<_, Error>(parts.chain(end))
        };
        stream::once(opened).try_flatten().boxed_local()
    }

    fn write<'a>(
        &'a self,
        directory: &'a str,
        mut archive: BoxStream<'static, io::Result<Bytes>>,
    ) -> LocalBoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut process = self.execute("write", directory, true).await?;
            let failed = |error: io::Error| Error::system(self.place(directory), error);
            let mut stdin = process.stdin();
            while let Some(part) = archive.next().await {
                let part = part.map_err(failed)?;
                // If the program has stopped reading, `end` returns its error. The archive marks
                // its own end.
                if let Some(writer) = &mut stdin
                    && writer.write_all(&part).await.is_err()
                {
                    stdin = None;
                }
            }
            if let Some(stdin) = &mut stdin {
                let _ = stdin.flush().await;
            }
            self.end(directory, process).await
        })
    }
}
