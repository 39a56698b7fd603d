//! Whole scripts, octet by octet, with names in place of their tokens, which are opened and checked.
#![allow(clippy::unwrap_used)]

use crate::bootscripts::tests::fleet_of;
use runtime::SiteKey;
use runtime::boot_token::BootTokens;
use runtime::feed::FeedEvent;
use tinwright::hardware::v1 as hw;
use tinwright::instance::v1 as occ;

use super::super::tests::{MAC, at, boots_at, hardware, now, site};
use super::*;
use crate::decision::Policy;
use crate::site::{Site, Syslog};

const SOURCE: &str = "192.0.2.10";

/// Returns a site with every setting that scripts show.
fn full_site() -> Site {
    let consoles = vec!["tty0".into(), "ttyS1,115200 panic=5".into()];
    Site { consoles, syslog: Some(Syslog { debug: false }), ..site() }
}

/// Returns a machine whose record has every value that scripts show, changed by `change`.
fn boots(id: HardwareId, change: impl FnOnce(&mut hw::Hardware)) -> BootScripts {
    let boots = boots_at(id, full_site());
    let mut record = hardware(id, MAC, SOURCE);
    record.facility = "lab".into();
    record.interfaces[0].dhcp.as_mut().unwrap().vlan_id = 42;
    let kernel_params = vec!["quiet loglevel=7".into(), "no${way} last".into()];
    record.policy = Some(hw::Policy { kernel_params, ..hw::Policy::default() });
    change(&mut record);
    fleet_of(&boots).hardware(FeedEvent::Put(record));
    boots
}

fn with_instance(boots: BootScripts, id: HardwareId, state: occ::State) -> BootScripts {
    fleet_of(&boots).instance(FeedEvent::Snapshot(vec![occ::Instance {
        id: "i-1".into(),
        state: state.into(),
        hardware_id: id.to_string(),
        ..occ::Instance::default()
    }]));
    boots
}

/// Returns the script with names in place of its tokens, which are checked.
fn text(boots: &BootScripts, mac: Mac, id: HardwareId) -> String {
    let mut text = boots.serve(&ScriptRequest::new(Some(mac), at(SOURCE)), now()).unwrap().text;
    let tokens = BootTokens::new(&SiteKey::new([1; 32])).unwrap();
    for (purpose, before, name) in [
        (Purpose::Files, "http://192.0.2.1:7080/v1/boot/", "FILES"),
        (Purpose::Identity, "boot_token=", "IDENTITY"),
    ] {
        let found = text.split_whitespace().find_map(|word| word.strip_prefix(before));
        let Some(token) = found.and_then(|rest| rest.split('/').next()) else { continue };
        let opened = tokens.open(purpose, token, now()).unwrap();
        assert_eq!((opened.claims.hardware, opened.claims.address), (id, at(SOURCE)));
        text = text.replace(&token.to_owned(), name);
    }
    text
}

/// Returns the worker's script for `mac` with these values.
fn expected(
    mac: &str,
    base: &str,
    before: &str,
    [kernel, initrd]: [&str; 2],
    line: &str,
    note: &str,
) -> String {
    format!(
        "#!ipxe
set base {base}
{before}set syslog 192.0.2.1 ||
set try:int32 0
:again
imgfree ||
kernel --name kernel ${{base}}/{kernel} {line} && initrd --name initrd ${{base}}/{initrd} && goto ready ||
inc try
echo files not fetched, attempt ${{try}} of 9, next in 20 s
sleep 20
iseq ${{try}} 9 || goto again
set refused:int32 0
:new
chain --replace http://192.0.2.1:7080/{mac}/auto.ipxe ||
imgfetch --name note http://192.0.2.1:7080/healthz && imgfree note && inc refused ||
iseq ${{refused}} 3 && goto failed ||
echo no new script, next attempt in 20 s
sleep 20
goto new
:ready
imgfetch --name note {note}/started && imgfree note ||
boot ||
:failed
imgfetch --name note {note}/failed && imgfree note ||
exit 1
"
    )
}

const FILES: &str = "http://192.0.2.1:7080/v1/boot/FILES";
const OURS: [&str; 2] = ["vmlinuz-x86_64", "initramfs-x86_64"];

#[test]
fn the_worker_script() {
    let id = HardwareId::new();
    let boots = with_instance(boots(id, |_| {}), id, occ::State::Provisioning);
    let line = format!(
        "initrd=initrd facility=lab syslog_host=192.0.2.1 grpc_authority=192.0.2.1:42113 tinkerbell_tls=true \
         worker_id={id} hw_addr=02:00:00:00:00:01 instance_id=i-1 vlan_id=42 boot_token=IDENTITY boot_url=${{base}} \
         ca_sha256=ab boot_time=1800000000 intel_iommu=on iommu=pt console=tty0 console=ttyS1,115200 panic=5 \
         quiet loglevel=7 last"
    );
    assert_eq!(text(&boots, MAC, id), expected(&MAC.dashed(), FILES, "", OURS, &line, "${base}"));
}

#[test]
fn the_worker_script_of_an_environment_on_another_server_and_architecture() {
    let id = HardwareId::new();
    let boots = boots(id, |record| {
        record.architecture = "aarch64".into();
        record.facility = String::new();
        record.interfaces[0].dhcp.as_mut().unwrap().vlan_id = 0;
        record.interfaces[0].netboot.as_mut().unwrap().osie = Some(hw::Osie {
            base_url: "http://192.0.2.9/hook/".into(),
            kernel: "own-kernel".into(),
            kernel_params: vec!["theirs".into()],
            ..hw::Osie::default()
        });
    });
    let line = format!(
        "initrd=initrd syslog_host=192.0.2.1 grpc_authority=192.0.2.1:42113 tinkerbell_tls=true worker_id={id} \
         hw_addr=02:00:00:00:00:01 boot_token=IDENTITY boot_url={FILES} ca_sha256=ab boot_time=1800000000 \
         console=tty0 console=ttyS1,115200 panic=5 quiet loglevel=7 last theirs"
    );
    let files = ["own-kernel", "initramfs-aarch64"];
    let base = "http://192.0.2.9/hook";
    assert_eq!(text(&boots, MAC, id), expected(&MAC.dashed(), base, "", files, &line, FILES));
}

#[test]
fn the_generic_script() {
    let site = Site { policy: Policy { boot_unknown: true, ..Policy::default() }, ..full_site() };
    let boots = boots_at(HardwareId::new(), site);
    let before = "set arch ${buildarch}
iseq ${arch} i386 && cpuid --ext 29 && set arch x86_64 ||
iseq ${arch} arm64 && set arch aarch64 ||
";
    let line = "initrd=initrd syslog_host=192.0.2.1 grpc_authority=192.0.2.1:42113 tinkerbell_tls=true boot_url=${base} \
         ca_sha256=ab boot_time=1800000000 console=tty0 console=ttyS1,115200 panic=5 worker_id=${mac} \
         hw_addr=${mac}";
    let files = ["vmlinuz-${arch}", "initramfs-${arch}"];
    let nobody = HardwareId::from_bytes(NO_HARDWARE);
    assert_eq!(
        text(&boots, Mac([2, 0, 0, 0, 0, 9]), nobody),
        expected("02-00-00-00-00-09", FILES, before, files, line, "${base}")
    );
}

#[test]
fn the_wrapper_of_a_custom_script() {
    let id = HardwareId::new();
    let boots = boots(id, |record| {
        let ipxe = hw::Ipxe { contents: "#!ipxe\nshell".into(), ..hw::Ipxe::default() };
        record.interfaces[0].netboot.as_mut().unwrap().ipxe = Some(ipxe);
    });
    let own = format!("{FILES}/{}", MAC.dashed());
    let expected = format!(
        "#!ipxe
imgfetch --name note {own}.started && imgfree note ||
set try:int32 0
:again
chain --autofree {own}.ipxe && goto end ||
iseq ${{try}} 3 && goto failed ||
inc try
sleep 5
goto again
:failed
imgfetch --name note {own}.failed && imgfree note ||
:end
exit 1
"
    );
    assert_eq!(text(&boots, MAC, id), expected);
}

#[test]
fn the_pxelinux_configuration() {
    let id = HardwareId::new();
    let boots = boots(id, |_| {});
    let format = ScriptFormat::Pxelinux;
    let request = ScriptRequest { format, ..ScriptRequest::new(Some(MAC), at(SOURCE)) };
    let text = boots.serve(&request, now()).unwrap().text;
    let token = |before: &str| {
        let rest = text.split(before).nth(1).unwrap();
        rest.split([' ', '/', '\n']).next().unwrap()
    };
    let (files, identity) = (token("/v1/boot/"), token(" boot_token="));
    let base = format!("http://192.0.2.1:7080/v1/boot/{files}");
    let expected = format!(
        "default worker
label worker
  kernel {base}/vmlinuz-x86_64
  initrd {base}/initramfs-x86_64
  append facility=lab syslog_host=192.0.2.1 grpc_authority=192.0.2.1:42113 tinkerbell_tls=true worker_id={id} \
         hw_addr=02:00:00:00:00:01 vlan_id=42 boot_token={identity} boot_url={base} ca_sha256=ab \
         boot_time=1800000000 intel_iommu=on iommu=pt console=tty0 console=ttyS1,115200 panic=5 quiet loglevel=7 last
"
    );
    assert_eq!(text, expected);
}
