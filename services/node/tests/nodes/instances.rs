//! Instances that name a stack: which boots get it, and who is told that it runs.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use runtime::Clock;
use store::Store;
use store::memory::MemoryStore;
use tinwright::HardwareId;
use tinwright::instance::v1::instance::Os;
use tinwright::instance::v1::{ImageStack, Instance, ReportStackRunningRequest, State};
use tinwright::node::v1::connect_request::Message as Up;
use tinwright::node::v1::connect_response::Message as Down;
use tinwright::node::v1::mount::{Definition, Nfs};
use tinwright::node::v1::stack_service_client::StackServiceClient;
use tinwright::node::v1::{
    Container, CreateStackRequest, DesiredStack, Mount, NodeObservation, NodeState, Stack,
};
use tonic::{Code, Status};

use super::site::Site;
use super::support::{Agent, Replica, manual, soon};

/// A process at a site with a stack, a machine, and a clock that a test moves.
struct Bench {
    site: Site,
    replica: Replica,
    clock: Clock,
    machine: HardwareId,
    stack: String,
}

impl Bench {
    async fn start() -> Self {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        let (site, clock) = (Site::default(), manual());
        let replica = Replica::start_at(&site, &store, "a", &clock).await;
        let nfs = Nfs { host: "nas".into(), path: "/x".into(), ..Nfs::default() };
        let mount = Mount { definition: Some(Definition::Nfs(nfs)), ..Mount::default() };
        let container = Container {
            name: "os".into(),
            command: "/sbin/init".into(),
            mount: Some(mount),
            ..Container::default()
        };
        let stack = Stack { name: "web".into(), containers: vec![container], ..Stack::default() };
        let request = CreateStackRequest { stack: Some(stack), ..CreateStackRequest::default() };
        let mut stacks = StackServiceClient::new(replica.operator_channel("anna"));
        let created = stacks.create_stack(request).await.unwrap().into_inner();
        let stack = created.stack.unwrap().id;
        Self { site, replica, clock, machine: HardwareId::new(), stack }
    }

    /// The instance `id` in `state`, whose machine was booted at `install_time`.
    fn instance(&self, id: &str, state: State, install_time: Option<SystemTime>) -> Instance {
        Instance {
            id: id.into(),
            hardware_id: self.machine.to_string(),
            generation: 3,
            state: state.into(),
            install_time: install_time.map(Into::into),
            os: Some(Os::ImageStack(ImageStack { stack_id: "web".into() })),
            ..Instance::default()
        }
    }

    /// Puts the instance `id`, and waits until the node has its stack.
    async fn assign(&self, id: &str, state: State, install_time: Option<SystemTime>) {
        self.site.put(self.instance(id, state, install_time));
        let is_assigned = |node: &tinwright::node::v1::Node| {
            (&*node.instance_id, &node.stack_id) == (id, &self.stack)
        };
        self.replica.until(self.machine, is_assigned).await;
    }

    /// Connects the agent of a new boot, a minute later.
    async fn boot(&self, boot: &str) -> Agent {
        self.clock.advance(Duration::from_secs(60));
        let epoch = self.site.begin_epoch(self.machine);
        self.replica.try_connect(self.machine, boot, epoch).await.unwrap()
    }

    /// Reports that `desired` runs.
    async fn run(&self, agent: &Agent, desired: &DesiredStack) {
        let observation = NodeObservation {
            assignment: desired.assignment,
            stack_id: desired.stack_id.clone(),
            stack_version: desired.stack_version,
            state: NodeState::Running.into(),
            ..NodeObservation::default()
        };
        agent.send(Up::Observation(observation)).await;
        self.replica.until(self.machine, |node| node.state() == NodeState::Running).await;
    }

    /// Waits for `count` reports.
    async fn reports(&self, count: usize) -> Vec<ReportStackRunningRequest> {
        let are_there = async {
            while self.site.state().reports.len() < count {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        soon(are_there).await;
        self.site.state().reports.clone()
    }
}

/// Waits for the next desired stack; none if the stream ends.
async fn desired(agent: &mut Agent) -> Option<DesiredStack> {
    match soon(agent.down.message()).await {
        Ok(Some(message)) => match message.message {
            Some(Down::DesiredStack(desired)) => Some(desired),
            other => panic!("{other:?}"),
        },
        Ok(None) => None,
        Err(status) => {
            assert_eq!(status.code(), Code::Unavailable);
            None
        }
    }
}

#[tokio::test]
async fn the_instance_is_told_that_its_stack_runs_and_again_if_it_did_not_hear_it() {
    let bench = Bench::start().await;
    let install = bench.clock.wall();
    bench.assign("i", State::Provisioning, Some(install)).await;
    bench.site.state().report_failures.push_back(Status::unavailable("no leader"));
    let mut agent = bench.boot("boot-1").await;
    let stack = desired(&mut agent).await.unwrap();
    bench.run(&agent, &stack).await;
    let node = bench.replica.until(bench.machine, |node| node.boot_time.is_some()).await;
    assert_eq!(node.boot_time, Some((install + Duration::from_secs(60)).into()));
    let expected = ReportStackRunningRequest {
        hardware_id: bench.machine.to_string(),
        instance_id: "i".into(),
        generation: 3,
        boot_time: node.boot_time,
    };
    let reports = bench.reports(2).await;
    assert_eq!(reports[..2], [expected.clone(), expected]);
}

#[tokio::test]
async fn an_instance_that_is_reinstalled_is_not_told_of_the_boot_before() {
    let bench = Bench::start().await;
    bench.assign("i", State::Provisioning, Some(bench.clock.wall())).await;
    let mut former = bench.boot("boot-1").await;
    let stack = desired(&mut former).await.unwrap();
    bench.run(&former, &stack).await;
    let first = bench.reports(1).await.remove(0).boot_time;
    bench.clock.advance(Duration::from_secs(60));
    let reinstalled = bench.clock.wall();
    let again = bench.instance("i", State::Reinstalling, Some(reinstalled));
    bench.site.put(Instance { generation: 4, ..again });
    let mut agent = bench.boot("boot-2").await;
    let stack = desired(&mut agent).await.unwrap();
    bench.run(&agent, &stack).await;
    let is_second = async {
        while bench.site.state().reports.last().unwrap().generation != 4 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(is_second).await;
    let second = Some((reinstalled + Duration::from_secs(60)).into());
    for report in &bench.site.state().reports {
        let boot_time = if report.generation == 3 { first } else { second };
        assert_eq!(report.boot_time, boot_time, "{report:?}");
    }
}

#[tokio::test]
async fn a_stack_is_sent_only_to_boots_that_began_after_the_machine_was_booted_for_its_instance() {
    let bench = Bench::start().await;
    bench.assign("i", State::Active, Some(bench.clock.wall())).await;
    let mut former = bench.boot("boot-1").await;
    assert_eq!(desired(&mut former).await.unwrap().stack_id, bench.stack);
    // The next instance, before and after its machine is booted for it.
    bench.site.put(bench.instance("i", State::Deprovisioning, None));
    assert_eq!(desired(&mut former).await.unwrap().stack_id, "", "a removal is sent");
    bench.assign("j", State::Provisioning, None).await;
    bench.clock.advance(Duration::from_secs(60));
    bench.assign("j", State::Provisioning, Some(bench.clock.wall())).await;
    let mut again = bench.replica.try_connect(bench.machine, "boot-1", 1).await.unwrap();
    // Who has the identity of the former boot has no other boot.
    let pretended = bench.replica.try_connect(bench.machine, "boot-x", 1).await;
    assert_eq!(pretended.err().unwrap().code(), Code::PermissionDenied);
    let mut agent = bench.boot("boot-2").await;
    assert_eq!(desired(&mut agent).await.unwrap().stack_id, bench.stack);
    assert_eq!(desired(&mut former).await, None, "it ended without another stack");
    assert_eq!(desired(&mut again).await, None);
}
