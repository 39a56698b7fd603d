//! A machine that is given back while its tenant has root on it.
//!
//! ```text
//! instance deleted ─▶ BMC does not answer ─▶ off: boot epoch ─▶ on, cable pulled out ─▶ boots the tenant's disk ─▶ prepared again
//!                     the tenant asks                                                  the tenant asks
//!                     └─ calls with the certificate of the installation ─┘
//! ```
//!
//! While the tenant asks, its system is paused, and a host with the Ethernet address of the machine takes its place.

use std::time::{Duration, SystemTime};

use rack::client::Client;
use rack::lab::wait;
use rack::machines::Machine;
use rack::site::Site;
use rcgen::KeyPair;
use runtime::authority::SiteAuthority;
use runtime::boot_token::{BootTokens, Purpose};
use runtime::{Caller, Channel};
use tinwright::HardwareId;
use tinwright::instance::v1::{Instance, State};
use tinwright::workflow::v1::worker_service_client::WorkerServiceClient;
use tinwright::workflow::v1::{Holder, NextActionRequest, Workflow, WorkflowState};
use tokio::task::block_in_place;
use tonic::Code;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

/// Maximum time until a step of the server or of the machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(10 * 60);
/// Interval between two requests for a state.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
/// Interval between two requests of the tenant: clients with many refused requests are not answered for a while.
const REQUEST_INTERVAL: Duration = Duration::from_secs(3);
/// An argument of the kernel of the installed system, as its console shows it.
const INSTALLED_KERNEL: &str = "root=LABEL=root";
/// An address that belongs to no machine.
const FREE_ADDRESS: &str = "198.51.100.99";
/// The alarm, in short.
const REFUSED_BOOT: &str = "the machine was not seen booting from the network";

/// The tenant's root, in the place of its machine.
struct Tenant<'a> {
    site: &'a Site,
    machine: &'a Machine,
    host: Client,
    /// Tokens for the machine and its address that an earlier boot of it got.
    tokens: Vec<String>,
}

impl<'a> Tenant<'a> {
    /// Takes the place of `machine`, which is paused, with the host `number`.
    fn new(site: &'a Site, machine: &'a Machine, number: u8, tokens: &[String]) -> Self {
        let host = Client::new(&site.lab, number, &machine.mac).unwrap();
        host.configure(&machine.address).unwrap();
        host.ip(&format!("addr add {FREE_ADDRESS}/24 dev eth0")).unwrap();
        Self { site, machine, host, tokens: tokens.to_vec() }
    }

    fn get(&self, source: &str, path: &str) -> (u16, String) {
        self.host.get(source, &format!("http://198.51.100.1:7080{path}")).unwrap()
    }

    /// Requests its machine's script until that is answered with `status`. No answer has a script.
    fn is_refused_with(&self, status: u16) {
        let refused = wait("the refusal", STEP_TIMEOUT, || {
            let (current, body) = self.get(&self.machine.address, "/auto.ipxe");
            assert!(says_nothing(&body), "{current}: {body}");
            let is_expected = current == status;
            if !is_expected {
                std::thread::sleep(REQUEST_INTERVAL);
            }
            is_expected.then_some(())
        });
        refused.unwrap();
    }

    /// Requests scripts, images, certificates and user data from its addresses, and gets none.
    fn gets_nothing(&self) {
        let mac = self.machine.mac.replace(':', "-");
        let paths = [
            "/auto.ipxe".to_owned(),
            format!("/{mac}/auto.ipxe"),
            format!("/ipxe?mac={mac}"),
            format!("/iso/{mac}/boot.iso"),
        ];
        for source in [&self.machine.address, FREE_ADDRESS] {
            for path in &paths {
                let (status, body) = self.get(source, path);
                assert!(status >= 400 && says_nothing(&body), "{source} {path}: {status} {body}");
            }
            for path in ["auto.ipxe", "pxelinux.cfg/01-"] {
                let path = match path.strip_suffix("01-") {
                    Some(_) => format!("{path}{mac}"),
                    None => format!("{mac}/{path}"),
                };
                let url = format!("tftp://198.51.100.1/{path}");
                let output = self.host.run("curl", ["-s", "-m", "20", "--interface", source, &url]);
                let output = output.unwrap();
                assert!(!output.status.success() && output.stdout.is_empty(), "{source} {path}");
            }
            for token in &self.tokens {
                let key = KeyPair::generate().unwrap();
                let redeemed = self.host.redeem(&self.site.server, source, token, &key).unwrap();
                let refused = redeemed.unwrap_err();
                assert_eq!(refused.code(), Code::PermissionDenied, "{source}: {refused}");
            }
            for path in ["user-data", "meta-data/instance-id"] {
                let url = format!("http://169.254.169.254/latest/{path}");
                let metadata = self.host.get(source, &url).unwrap();
                assert_eq!(metadata, (404, String::new()), "{source} {path}");
            }
        }
    }
}

/// Returns boot tokens of the machine `id` as it got them in earlier boots, up to the boot epoch `epoch`.
fn earlier_tokens(site: &Site, machine: &Machine, id: HardwareId, epoch: u64) -> Vec<String> {
    let authority = SiteAuthority::open(&site.server.data.join("secrets")).unwrap();
    let tokens = BootTokens::new(authority.keys().clone()).unwrap();
    let address = machine.address.parse().unwrap();
    let mint = |epoch| tokens.mint(Purpose::Identity, id, epoch, address, SystemTime::now());
    (0..=epoch).map(|epoch| mint(epoch).unwrap()).collect()
}

/// Returns a channel to the API with the certificate of a worker of the machine `id` in the boot epoch `epoch`.
async fn channel_of_worker(site: &Site, id: HardwareId, epoch: u64) -> Channel {
    let authority = SiteAuthority::open(&site.server.data.join("secrets")).unwrap();
    let own = authority.client(&Caller::worker(id, epoch)).unwrap();
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(authority.authority()))
        .identity(Identity::from_pem(&own.certificate, own.key.expose()));
    let endpoint = Endpoint::from_shared(format!("https://{}", site.server.api)).unwrap();
    endpoint.tls_config(tls).unwrap().connect().await.unwrap().into()
}

/// Requests actions with the certificate of an earlier boot, until that is refused. Gets none.
async fn request_actions(channel: Channel) {
    let mut worker = WorkerServiceClient::new(channel);
    let holder = Holder { boot_id: "tenant".into(), process_id: "tenant".into() };
    let request = NextActionRequest { holder: Some(holder), ..Default::default() };
    loop {
        match worker.next_action(request.clone()).await {
            Ok(next) => assert_eq!(next.into_inner().assignment, None),
            Err(refused) => {
                assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
                return;
            }
        }
    }
}

/// Waits until the workflow that cleans up the machine `id` fulfils `condition`.
async fn clean_up(site: &Site, id: &str, condition: impl Fn(&Workflow) -> bool) -> Workflow {
    let polling = async {
        loop {
            let workflows = site.operator.workflows(id).await.unwrap();
            let clean_up =
                workflows.into_iter().find(|work| work.state() != WorkflowState::Success);
            if let Some(found) = clean_up.filter(&condition) {
                return found;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(STEP_TIMEOUT, polling).await.expect("a step of the clean-up")
}

/// Returns how often the console shows that the installed system was started.
fn disk_boots(site: &Site, machine: &Machine) -> usize {
    machine.console(&site.lab).matches(INSTALLED_KERNEL).count()
}

/// Deletes `instance`, whose tenant has root on `machine`, and waits until the machine with the hardware id `id` is free.
pub(crate) async fn give_back(site: &Site, id: &str, machine: &Machine, instance: &Instance) {
    let hardware: HardwareId = id.parse().unwrap();
    let installation = site.operator.workflows(id).await.unwrap().pop().unwrap();
    let tokens = earlier_tokens(site, machine, hardware, installation.boot_epoch);
    let channel = channel_of_worker(site, hardware, installation.boot_epoch).await;
    let boots_before = disk_boots(site, machine);

    site.hypervisor.suspend(machine).unwrap();
    site.lab.pause("sushy-emulator").unwrap();
    site.operator.delete_instance(&instance.id).await.unwrap();
    let calls = tokio::spawn(request_actions(channel));
    clean_up(site, id, |work| work.state() == WorkflowState::Preparing).await;
    block_in_place(|| {
        let tenant = Tenant::new(site, machine, 7, &tokens);
        tenant.is_refused_with(503);
        tenant.gets_nothing();
        assert!(site.hypervisor.is_on(machine).unwrap(), "not yet switched off");
    });

    site.hypervisor.plug_cable(machine, false).unwrap();
    site.lab.resume("sushy-emulator").unwrap();
    let is_new = |work: &Workflow| work.prepared && work.boot_epoch > installation.boot_epoch;
    let prepared = clean_up(site, id, is_new).await;
    block_in_place(|| {
        let has_booted = || (disk_boots(site, machine) > boots_before).then_some(());
        wait("the boot of the tenant's disk", STEP_TIMEOUT, has_booted).unwrap();
        println!("{} has booted its disk", machine.name);
        site.hypervisor.suspend(machine).unwrap();
        site.hypervisor.plug_cable(machine, true).unwrap();
        let tenant = Tenant::new(site, machine, 8, &tokens);
        tenant.is_refused_with(403);
        tenant.gets_nothing();
    });
    let warned = clean_up(site, id, |work| work.warning.contains(REFUSED_BOOT)).await;
    assert!(warned.state_reason.contains(REFUSED_BOOT), "{}", warned.state_reason);
    let alarms = site.operator.alarms(&prepared.id).await.unwrap();
    assert!(alarms.iter().any(|alarm| alarm.text.contains(REFUSED_BOOT)), "{alarms:?}");
    println!("the boot of {} was refused", machine.name);
    calls.await.unwrap();

    let gone = site.operator.wait_for_state(&instance.id, State::Deleted, STEP_TIMEOUT, |_| {});
    gone.await.unwrap();
    let done = site.operator.workflow(&prepared.id).await.unwrap();
    assert_eq!(done.state(), WorkflowState::Success, "{}", done.state_reason);
    assert!(done.preparations > prepared.preparations, "prepared again: {done:?}");
}

/// True if the body of a refusal says nothing but that.
fn says_nothing(body: &str) -> bool {
    body.is_empty() || body == "not allowed\n"
}
