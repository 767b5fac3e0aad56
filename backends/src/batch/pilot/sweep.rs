//! Pilots and files that dead processes have left.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use std::{fs, io};

use super::files::{self, LeftFile};
use super::{PilotJob, PilotSystem, Progress};
use crate::BackendError;
use crate::owner::JobOwner;

/// How long the files of a pilot are left alone that the batch system does not list: it may be
/// submitted just now, or lost for a moment.
const UNKNOWN: Duration = Duration::from_secs(120);

/// Cancels the pilots of processes that are gone, removes the files in `directory` that they or
/// others have left, and returns the names of all.
///
/// # Errors
/// The batch system does not answer, or a file can't be removed.
pub async fn sweep<S: PilotSystem>(directory: &Path) -> Result<Vec<String>, BackendError> {
    // Before the question about jobs: the job of a file that is younger may be missing there.
    let files = files::all(directory)?;
    let jobs = S::jobs().await?;
    let mut removed = BTreeSet::new();
    for job in &jobs {
        if !has_ended(job) && is_orphaned(job) {
            S::cancel(&job.id, None).await?;
            removed.insert(job.name.clone());
        }
    }
    for file in files {
        if is_left_over(&file, &jobs) {
            match fs::remove_file(&file.path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(refused!("{} can't be removed: {error}", file.path.display()));
                }
                _ => removed.insert(file.id),
            };
        }
    }
    Ok(removed.into_iter().collect())
}

fn has_ended(job: &PilotJob) -> bool {
    matches!(job.progress, Progress::Ended(_))
}

fn is_orphaned(job: &PilotJob) -> bool {
    let owner = job.owner.as_deref().and_then(JobOwner::from_text);
    owner.is_some_and(|owner| owner.is_a_dead_process())
}

/// Returns whether a file has no process or job that needs it.
fn is_left_over(file: &LeftFile, jobs: &[PilotJob]) -> bool {
    let is_old = || file.written.elapsed().is_ok_and(|age| age > UNKNOWN);
    let of_file = |job: &&PilotJob| job.pilot.as_ref() == Some(&file.id);
    match jobs.iter().find(of_file) {
        Some(job) => is_orphaned(job) || has_ended(job) && is_old(),
        None => is_old(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use fiber_core::ExitReason;

    use super::*;
    use crate::JobState;

    #[test]
    fn files_are_left_over_when_nobody_needs_them() {
        let age = |seconds| LeftFile {
            path: "x".into(),
            id: "fiber-1".into(),
            written: SystemTime::now() - Duration::from_secs(seconds),
        };
        let runs = Progress::In(JobState::Running);
        let ended = Progress::Ended(ExitReason::Normal);
        let own = JobOwner::this_process().unwrap();
        let of = |progress: &Progress, owner: &JobOwner| PilotJob {
            id: "7".into(),
            name: "fiber-1".into(),
            progress: progress.clone(),
            pilot: Some("fiber-1".into()),
            owner: Some(owner.to_text()),
        };
        for (progress, seconds, expected) in
            [(&runs, 999, false), (&ended, 1, false), (&ended, 999, true)]
        {
            let left = is_left_over(&age(seconds), &[of(progress, &own)]);
            assert_eq!(left, expected, "{progress:?}");
        }
        assert!(is_left_over(&age(999), &[]) && !is_left_over(&age(1), &[]));
        let JobOwner::Process { boot, namespace, user, pid, started } = own else {
            panic!("a process")
        };
        let dead = JobOwner::Process { boot, namespace, user, pid, started: started + 1 };
        for progress in [runs, ended] {
            assert!(is_left_over(&age(1), &[of(&progress, &dead)]));
        }
    }
}
