//! Processes of the simulated kernel.

use async_trait::async_trait;
use tokio::time::Instant;

use super::{FakeKernel, FakeRun, failed};
use crate::kernel::{
    ContainerStep, Containers, Exit, FoundRun, KernelError, LogFile, RunId, StopSignal,
};

#[async_trait]
impl Containers for FakeKernel {
    async fn start(&self, step: &ContainerStep, _deadline: Instant) -> Result<(), KernelError> {
        self.begin("start").await?;
        let started = self.change(|state| {
            if !state.tables.is_mounted(&step.root) {
                return Err(failed("the root is not mounted"));
            }
            let run = FakeRun { root: step.root.clone(), exit: None };
            let earlier = state.tables.runs.insert(step.run.clone(), run);
            assert_eq!(earlier, None, "one run was started twice");
            Ok(())
        });
        self.end("start").await;
        started
    }

    async fn runs(&self) -> Result<Vec<FoundRun>, KernelError> {
        let runs = self.tables().runs.into_iter();
        Ok(runs.map(|(run, found)| FoundRun { run, exit: found.exit }).collect())
    }

    async fn wait(&self, run: &RunId) -> Result<Exit, KernelError> {
        let ended = self.wait_for(|state| match state.tables.runs.get(run) {
            None => Some(Exit::Unknown),
            Some(run) => run.exit,
        });
        Ok(ended.await)
    }

    async fn signal(&self, run: &RunId, signal: StopSignal) -> Result<(), KernelError> {
        let (name, exit) = match signal {
            StopSignal::Terminate => ("terminate", Exit::Signal(15)),
            StopSignal::HaltSystemd => ("halt systemd", Exit::Status(0)),
            StopSignal::Kill => ("kill", Exit::Signal(9)),
        };
        self.begin(name).await?;
        self.change(|state| {
            if state.ignored_signals.contains(&signal) {
                return;
            }
            if let Some(run) = state.tables.runs.get_mut(run) {
                run.exit.get_or_insert(exit);
            }
        });
        self.end(name).await;
        Ok(())
    }

    async fn forget(&self, run: &RunId) -> Result<(), KernelError> {
        self.begin("forget").await?;
        self.change(|state| {
            let live = state.tables.runs.get(run).is_some_and(|run| run.exit.is_none());
            assert!(!live, "a run with processes was forgotten");
            state.tables.runs.remove(run)
        });
        self.end("forget").await;
        Ok(())
    }

    async fn log(&self, log: &LogFile, text: &str) -> Result<(), KernelError> {
        self.begin("log").await?;
        self.change(|state| state.logs.entry(log.path.clone()).or_default().push(text.to_owned()));
        self.end("log").await;
        Ok(())
    }

    async fn remove_log(&self, log: &LogFile) -> Result<(), KernelError> {
        self.begin("remove log").await?;
        self.change(|state| state.logs.remove(&log.path));
        self.end("remove log").await;
        Ok(())
    }
}
