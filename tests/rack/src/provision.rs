//! The operator's calls: creates hardware and BMC records, templates and instances, and deletes instances.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use runtime::Channel;
use runtime::retry::is_final;
use tinwright::event::v1 as event;
use tinwright::event::v1::event_service_client::EventServiceClient;
use tinwright::hardware::v1 as hw;
use tinwright::hardware::v1::hardware_service_client::HardwareServiceClient;
use tinwright::hardware::v1::location_service_client::LocationServiceClient;
use tinwright::instance::v1 as occ;
use tinwright::instance::v1::instance_service_client::InstanceServiceClient;
use tinwright::netboot::v1 as nb;
use tinwright::netboot::v1::netboot_service_client::NetbootServiceClient;
use tinwright::power::v1 as power;
use tinwright::power::v1::power_service_client::PowerServiceClient;
use tinwright::workflow::v1 as wf;
use tinwright::workflow::v1::template_service_client::TemplateServiceClient;
use tinwright::workflow::v1::workflow_service_client::WorkflowServiceClient;
use tokio_stream::StreamExt as _;

use crate::SERVER;
use crate::bmc::Redfish;
use crate::machines::{Firmware, Machine};
use crate::server::osie;
pub use setup::images;

/// The SSH key of the installed systems.
pub const SSH_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEFwLV0NcVQc3xFGfoGqwvLyHWHVsvGvXPSZc0mYTg/R operator@rack";

/// Writes an image to the disk and boots it.
const TEMPLATE: &str = r#"
version: "0.1"
name: debian
global_timeout: 3600
tasks:
  - name: install
    worker: "{{.device_1}}"
    actions:
      - name: write-image
        image: quay.io/tinkerbell/actions/image2disk:latest
        timeout: 1800
        environment:
          DEST_DISK: /dev/vda
          IMG_URL: "{{.image_url}}"
          IMG_SHA256: "{{.image_sha256}}"
          COMPRESSED: "true"
      - name: boot-from-disk
        image: reboot
        timeout: 600
"#;

/// User data that prints id, host name, file, address and key, as cloud-init received them, on the console.
const USERDATA: &str = "#cloud-config
write_files:
  - path: /etc/rack-was-here
    content: user data arrived
phone_home:
  url: http://169.254.169.254/phone-home
  post: [instance_id, hostname]
  tries: 10
runcmd:
  - [sh, -c, 'echo \"RACK id=$(cloud-init query instance_id) host=$(hostname) file=$(cat /etc/rack-was-here | tr \" \" -) ip=$(hostname -I | cut -d\" \" -f1) key=$(cut -d\" \" -f3 /root/.ssh/authorized_keys /home/*/.ssh/authorized_keys 2>/dev/null | tail -n1)\" > /dev/console']
";

/// An installable image.
#[derive(Clone, Debug)]
pub struct Image {
    /// File name below `/files`.
    pub name: String,
    /// SHA-256 of the compressed file, in hex.
    pub compressed_sha256: String,
    /// SHA-256 of the uncompressed image, in hex.
    pub raw_sha256: String,
    /// Size of the uncompressed image, in bytes.
    pub raw_length: u64,
}

impl Image {
    /// Returns the URL of the image in the lab.
    pub fn url(&self) -> String {
        format!("http://{SERVER}:7080/files/{}", self.name)
    }
}

/// A system that an image has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum System {
    /// Debian with cloud-init.
    Debian,
    /// A small system that does what tests of installations need of Debian, at a tenth of the
    /// processor time: it prints its metadata, phones home, and counts its boots. It has no SSH.
    Light,
}

/// Builds the images of `system` if they are missing. Returns their folder.
pub fn images_of(system: System) -> anyhow::Result<PathBuf> {
    let folder = images()?;
    if system == System::Light {
        let script = setup::root().join("tests/rack/assets/light/image.sh");
        // In a mount namespace of its own, as the images of Debian.
        let mut build = Command::new("unshare");
        build.args(["--mount", "--propagation", "private", "sh"]).arg(script);
        setup::run(build.arg(&folder).arg(osie()?))?;
    }
    Ok(folder)
}

/// Returns the image of `system` in `folder` for machines with `firmware`.
pub fn image_of(system: System, folder: &Path, firmware: Firmware) -> anyhow::Result<Image> {
    let name = match (system, firmware) {
        (System::Debian, Firmware::Bios) => "debian-bios.raw.zst",
        (System::Debian, Firmware::Uefi) => "debian-efi.raw.zst",
        (System::Light, Firmware::Bios) => "light-bios.raw.zst",
        (System::Light, Firmware::Uefi) => "light-efi.raw.zst",
    };
    let digest_file = std::fs::read_to_string(folder.join(format!("{name}.sha256")))?;
    let (raw, length) =
        digest_file.trim().split_once(' ').context("digest and length of the image")?;
    Ok(Image {
        name: name.to_owned(),
        compressed_sha256: sha256(&folder.join(name), None)?,
        raw_sha256: raw.to_owned(),
        raw_length: length.parse()?,
    })
}

/// Returns the image of Debian in `folder` for machines with `firmware`.
pub fn image(folder: &Path, firmware: Firmware) -> anyhow::Result<Image> {
    image_of(System::Debian, folder, firmware)
}

/// Returns the SHA-256 of the first `length` bytes of a file, or of the whole file, in hex.
pub fn sha256(path: &Path, length: Option<u64>) -> anyhow::Result<String> {
    use sha2::{Digest as _, Sha256};
    use std::io::Read as _;
    let mut file = std::fs::File::open(path)?.take(length.unwrap_or(u64::MAX));
    let (mut digest, mut buffer) = (Sha256::new(), vec![0; 1 << 20]);
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect());
        }
        digest.update(buffer.get(..read).unwrap_or_default());
    }
}

/// Returns an instance without a machine and an image, named `hostname`.
pub fn instance_of(hostname: &str) -> occ::Instance {
    let os = occ::instance::OperatingSystem {
        distro: "debian".into(),
        version: "12".into(),
        ..Default::default()
    };
    occ::Instance {
        hostname: hostname.to_owned(),
        os: Some(occ::instance::Os::OperatingSystem(os)),
        userdata: USERDATA.into(),
        ssh_keys: vec![SSH_KEY.into()],
        ..Default::default()
    }
}

/// Returns an instance without a machine, named `hostname`, which a template installs with `image`.
pub fn instance(template_id: &str, hostname: &str, image: &Image) -> occ::Instance {
    let values = BTreeMap::from([
        ("image_url".to_owned(), image.url()),
        ("image_sha256".to_owned(), image.compressed_sha256.clone()),
    ]);
    let template_id = template_id.to_owned();
    occ::Instance { template_id, template_values: values, ..instance_of(hostname) }
}

/// Returns the hardware record of `machine`, with network boot allowed.
pub fn record(machine: &Machine) -> hw::Hardware {
    let address = hw::Address {
        address: machine.address.clone(),
        prefix_length: 24,
        gateway: SERVER.to_string(),
    };
    let dhcp =
        hw::Dhcp { address: Some(address), hostname: machine.name.clone(), ..Default::default() };
    let interface = hw::Interface {
        mac: machine.mac.clone(),
        name: "eth0".into(),
        dhcp: Some(dhcp),
        netboot: Some(hw::Netboot { allow_pxe: true, ..Default::default() }),
        ..Default::default()
    };
    let policy = hw::Policy {
        phone_home: hw::policy::PhoneHome::Required.into(),
        // Emulated machines are slow enough.
        kernel_params: vec!["mitigations=off".into()],
        ..Default::default()
    };
    hw::Hardware {
        name: machine.name.clone(),
        facility: "rack".into(),
        state: hw::State::Provisionable.into(),
        interfaces: vec![interface],
        disks: vec![hw::Disk { device: "/dev/vda".into() }],
        policy: Some(policy),
        ..Default::default()
    }
}

/// A client with the operator's certificate.
#[derive(Clone, Debug)]
pub struct Operator {
    channel: Channel,
}

impl Operator {
    /// Creates the client on `channel`.
    pub fn new(channel: Channel) -> Self {
        Self { channel }
    }

    /// Creates a hardware record. Returns its id.
    pub async fn create_hardware(&self, hardware: hw::Hardware) -> anyhow::Result<String> {
        let request = hw::CreateHardwareRequest { hardware: Some(hardware), ..Default::default() };
        let created =
            HardwareServiceClient::new(self.channel.clone()).create_hardware(request).await?;
        Ok(created.into_inner().hardware.context("no hardware in the response")?.id)
    }

    /// Returns the boots of the hardware `id`, oldest first.
    pub async fn boots(&self, id: &str) -> anyhow::Result<Vec<nb::Boot>> {
        let request = nb::ListBootsRequest { hardware_id: id.to_owned(), ..Default::default() };
        let listed = NetbootServiceClient::new(self.channel.clone()).list_boots(request).await?;
        Ok(listed.into_inner().boots)
    }

    /// Creates the BMC record of `machine`, whose hardware id is `id`.
    pub async fn create_bmc(
        &self,
        id: &str,
        machine: &Machine,
        redfish: &Redfish,
    ) -> anyhow::Result<()> {
        let bmc = power::Bmc {
            hardware_id: id.to_owned(),
            protocol: Some(power::bmc::Protocol::Redfish(power::bmc::Redfish {
                url: redfish.url.clone(),
                system_id: machine.uuid.clone(),
                certificate_sha256: redfish.certificate_sha256.clone(),
                ..Default::default()
            })),
            username: "admin".into(),
            password: "unused".into(),
            ..Default::default()
        };
        let request = power::CreateBmcRequest { bmc: Some(bmc), ..Default::default() };
        PowerServiceClient::new(self.channel.clone()).create_bmc(request).await?;
        Ok(())
    }

    /// Creates a location. Returns its id.
    pub async fn create_location(&self, name: &str) -> anyhow::Result<String> {
        let location = hw::Location { name: name.to_owned(), ..Default::default() };
        let request = hw::CreateLocationRequest { location: Some(location), ..Default::default() };
        let created =
            LocationServiceClient::new(self.channel.clone()).create_location(request).await?;
        Ok(created.into_inner().location.context("no location in the response")?.id)
    }

    /// Creates the template that installs images. Returns its id.
    pub async fn create_template(&self) -> anyhow::Result<String> {
        self.create_template_named("debian", "/dev/vda").await
    }

    /// Creates a template that writes the image to `disk`, a path or a placeholder. Returns its id.
    pub async fn create_template_named(&self, name: &str, disk: &str) -> anyhow::Result<String> {
        let data = TEMPLATE.replace("DEST_DISK: /dev/vda", &format!("DEST_DISK: \"{disk}\""));
        self.create_template_from(name, &data).await
    }

    /// Creates a template that writes `image`, whatever the instance names. Returns its id.
    pub async fn create_template_of(&self, name: &str, image: &Image) -> anyhow::Result<String> {
        let data = TEMPLATE.replace("{{.image_url}}", &image.url());
        let data = data.replace("{{.image_sha256}}", &image.compressed_sha256);
        self.create_template_from(name, &data).await
    }

    async fn create_template_from(&self, name: &str, data: &str) -> anyhow::Result<String> {
        let data = data.replace("name: debian", &format!("name: {name}"));
        let template = wf::Template { data, ..Default::default() };
        let request = wf::CreateTemplateRequest { template: Some(template), ..Default::default() };
        let created =
            TemplateServiceClient::new(self.channel.clone()).create_template(request).await?;
        Ok(created.into_inner().template.context("no template in the response")?.id)
    }

    /// Creates an instance.
    pub async fn order(&self, instance: occ::Instance) -> anyhow::Result<occ::Instance> {
        let request = occ::CreateInstanceRequest { instance: Some(instance), ..Default::default() };
        let created =
            InstanceServiceClient::new(self.channel.clone()).create_instance(request).await?;
        created.into_inner().instance.context("no instance in the response")
    }

    /// Returns the machines that are enrolled and not accepted.
    pub async fn enrolled(&self) -> anyhow::Result<Vec<hw::Hardware>> {
        let mut request = hw::ListHardwareRequest::default();
        request.set_state(hw::State::Enrolled);
        let listed =
            HardwareServiceClient::new(self.channel.clone()).list_hardware(request).await?;
        Ok(listed.into_inner().hardware)
    }

    /// Waits until the instance `id` is in `state`, for at most `timeout`; `on_update` is called for each update on the way.
    /// Fails if the instance fails, or is deleted while another state is awaited.
    pub async fn wait_for_state(
        &self,
        id: &str,
        state: occ::State,
        timeout: Duration,
        mut on_update: impl FnMut(&occ::Instance),
    ) -> anyhow::Result<()> {
        use occ::watch_instances_response::Event;
        let (start, mut last) = (Instant::now(), String::new());
        let request =
            occ::WatchInstancesRequest { id: id.to_owned(), view: 0, ..Default::default() };
        let mut client = InstanceServiceClient::new(self.channel.clone());
        let mut events = client.watch_instances(request.clone()).await?.into_inner();
        loop {
            let left = timeout.saturating_sub(start.elapsed());
            let next = tokio::time::timeout(left, events.next()).await;
            let next =
                next.with_context(|| format!("instance {id} is still {last} after {timeout:?}"))?;
            let event = match next.context("the watch ended")? {
                Ok(response) => response.event,
                // On a busy host, the store may not answer in time: then a client watches again.
                Err(status) if !is_final(status.code()) => {
                    println!("instance {id} is watched again: {status}");
                    let mut again = client.watch_instances(request.clone()).await;
                    while again.is_err() && start.elapsed() < timeout {
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        again = client.watch_instances(request.clone()).await;
                    }
                    events = again?.into_inner();
                    continue;
                }
                Err(status) => return Err(status.into()),
            };
            match event {
                Some(Event::Instance(instance)) => {
                    on_update(&instance);
                    if instance.state() == state {
                        return Ok(());
                    }
                    last = instance.state().word();
                    let failed = matches!(
                        instance.state(),
                        occ::State::Failed | occ::State::DeprovisionFailed
                    );
                    anyhow::ensure!(!failed, "{last}: {}", instance.state_reason);
                }
                Some(Event::DeletedId(_)) if state == occ::State::Deleted => return Ok(()),
                Some(Event::DeletedId(_)) => anyhow::bail!("instance {id} was deleted"),
                Some(Event::Synced(_)) | None => {}
            }
        }
    }

    /// Returns the instance `id`, unless it is gone.
    pub async fn instance(&self, id: &str) -> anyhow::Result<Option<occ::Instance>> {
        let by = Some(occ::get_instance_request::By::Id(id.to_owned()));
        let request = occ::GetInstanceRequest { by, ..Default::default() };
        match InstanceServiceClient::new(self.channel.clone()).get_instance(request).await {
            Ok(found) => Ok(found.into_inner().instance),
            Err(status) if status.code() == tonic::Code::NotFound => Ok(None),
            Err(status) => Err(status.into()),
        }
    }

    /// Returns the hardware record `id`.
    pub async fn hardware(&self, id: &str) -> anyhow::Result<hw::Hardware> {
        let by = Some(hw::get_hardware_request::By::Id(id.to_owned()));
        let request = hw::GetHardwareRequest { by, ..Default::default() };
        let found = HardwareServiceClient::new(self.channel.clone()).get_hardware(request).await?;
        found.into_inner().hardware.context("no hardware in the response")
    }

    /// Begins to install the instance `id` again, with another template.
    pub async fn reinstall(&self, id: &str, template_id: &str) -> anyhow::Result<()> {
        let instance = occ::Instance { template_id: template_id.to_owned(), ..Default::default() };
        let request = occ::ReinstallInstanceRequest {
            id: id.to_owned(),
            instance: Some(instance),
            update_mask: Some(prost_types::FieldMask { paths: vec!["template_id".into()] }),
            ..Default::default()
        };
        InstanceServiceClient::new(self.channel.clone()).reinstall_instance(request).await?;
        Ok(())
    }

    /// Restarts the machine of the instance `id`.
    pub async fn restart(&self, id: &str) -> anyhow::Result<()> {
        let request = occ::RestartInstanceRequest { id: id.to_owned(), ..Default::default() };
        InstanceServiceClient::new(self.channel.clone()).restart_instance(request).await?;
        Ok(())
    }

    /// Deletes the instance `id`.
    pub async fn delete_instance(&self, id: &str) -> anyhow::Result<()> {
        let request = occ::DeleteInstanceRequest { id: id.to_owned(), ..Default::default() };
        InstanceServiceClient::new(self.channel.clone()).delete_instance(request).await?;
        Ok(())
    }

    /// Returns the workflow `id`.
    pub async fn workflow(&self, id: &str) -> anyhow::Result<wf::Workflow> {
        let request = wf::GetWorkflowRequest { id: id.to_owned(), ..Default::default() };
        let found = WorkflowServiceClient::new(self.channel.clone()).get_workflow(request).await?;
        found.into_inner().workflow.context("no workflow in the response")
    }

    /// Calls `on_update` for each update of a workflow of the hardware `id`, until one has succeeded.
    pub async fn watch_work(
        &self,
        id: &str,
        on_update: impl Fn(&wf::Workflow),
    ) -> anyhow::Result<()> {
        use wf::watch_workflows_response::Event;
        let mut client = WorkflowServiceClient::new(self.channel.clone());
        let request = wf::WatchWorkflowsRequest::default();
        let mut events = client.watch_workflows(request).await?.into_inner();
        while let Some(update) = events.next().await {
            if let Some(Event::Workflow(work)) = update?.event
                && work.hardware_id == id
            {
                on_update(&work);
                if work.state() == wf::WorkflowState::Success {
                    return Ok(());
                }
            }
        }
        anyhow::bail!("the watch of workflows ended")
    }

    /// Returns all workflows of the hardware `id`.
    pub async fn workflows(&self, id: &str) -> anyhow::Result<Vec<wf::Workflow>> {
        let request = wf::ListWorkflowsRequest { hardware_id: id.to_owned(), ..Default::default() };
        let listed =
            WorkflowServiceClient::new(self.channel.clone()).list_workflows(request).await?;
        Ok(listed.into_inner().workflows)
    }

    /// Returns the alarms on the object `id`, oldest first.
    pub async fn alarms(&self, id: &str) -> anyhow::Result<Vec<event::Event>> {
        self.events(id, event::EventKind::Alarm).await
    }

    /// Returns the events of this kind on the object `id`, oldest first.
    pub async fn events(
        &self,
        id: &str,
        kind: event::EventKind,
    ) -> anyhow::Result<Vec<event::Event>> {
        let filter = event::EventFilter {
            kind: kind.into(),
            object_id: id.to_owned(),
            ..Default::default()
        };
        let request = event::ListEventsRequest { filter: Some(filter), ..Default::default() };
        let listed = EventServiceClient::new(self.channel.clone()).list_events(request).await?;
        Ok(listed.into_inner().events)
    }
}
