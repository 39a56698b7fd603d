//! The system, its boot override and its power.

use std::time::Duration;

use axum::http::Method;
use serde_json::{Value, json};

use super::{Answer, Bmc, Quirk, ROOT, Received};

/// The id of the system.
pub(crate) const ID: &str = "64";
/// The name of the system.
pub(crate) const NAME: &str = "node7";
/// The UUID of the machine, unless another one is set.
pub(crate) const UUID: &str = "4c4c4544-0042-3010-8052-b4c04f4d3232";
/// The MAC of the machine.
pub(crate) const MAC: &str = "02:00:00:00:00:07";
/// The id of another system.
const SECOND: &str = "HGX_Baseboard_0";
/// Delay of the first answer of a slow system: more than a search waits for the first one.
const SLOW_ANSWER: Duration = Duration::from_secs(6);
/// Number of systems of a BMC with many.
const MAX_SYSTEMS: usize = 70;
/// Number of systems on a page.
const PAGE_SYSTEMS: usize = 10;
/// The reset types.
const RESET_TYPES: [&str; 5] = ["On", "ForceOff", "ForceOn", "GracefulShutdown", "ForceRestart"];

/// A boot override.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Boot {
    pub(super) enabled: String,
    pub(super) target: String,
    /// Empty if it is not reported.
    pub(super) mode: String,
}

/// A reset that is done at the second reading of its task.
#[derive(Debug)]
pub(super) struct Task {
    reset: String,
    readings: u32,
}

impl Boot {
    pub(super) fn initial(is_unreported: bool) -> Self {
        let mode = if is_unreported { "" } else { "UEFI" };
        Self { enabled: "Disabled".into(), target: "None".into(), mode: mode.into() }
    }
}

impl Bmc {
    /// The override for the next start.
    pub(super) fn in_force(&self) -> &Boot {
        if self.has(Quirk::SettingsOnly) { &self.pending } else { &self.boot }
    }

    pub(super) fn systems(&self, query: &str) -> Value {
        if self.has(Quirk::ManySystems) {
            let page: usize = query.trim_start_matches("page=").parse().unwrap_or_default();
            let ids = page * PAGE_SYSTEMS..(page + 1) * PAGE_SYSTEMS;
            let members: Vec<_> = ids.map(|id| self.link(&format!("/Systems/{id}"))).collect();
            let mut body = json!({"Members": members});
            if (page + 1) * PAGE_SYSTEMS < MAX_SYSTEMS {
                let next = self.address(&format!("/Systems?page={}", page + 1));
                body["Members@odata.nextLink"] = json!(next);
            }
            return body;
        }
        let mut members = vec![self.link(&format!("/Systems/{ID}"))];
        if self.has_second() {
            members.insert(0, self.link(&format!("/Systems/{SECOND}")));
        }
        json!({"Members": members})
    }

    /// True if it has another system, before that of the machine.
    pub(super) fn has_second(&self) -> bool {
        let quirks = [
            Quirk::SecondSystemBroken,
            Quirk::SecondSystemUnauthorized,
            Quirk::SecondSystemHangs,
            Quirk::SecondSystemBreaks,
            Quirk::SystemsSlow,
        ];
        quirks.iter().any(|quirk| self.has(*quirk))
    }

    /// True if `request` gets no answer.
    pub(super) fn hangs(&self, request: &Received) -> bool {
        self.has(Quirk::SecondSystemHangs) && request.path.ends_with(SECOND)
    }

    /// True if the connection ends in the answer to `request`.
    pub(super) fn breaks(&self, request: &Received) -> bool {
        self.has(Quirk::SecondSystemBreaks) && request.path.ends_with(SECOND)
    }

    /// Returns the delay of the answer to `request`, if it has one, and counts it.
    pub(super) fn delay(&mut self, request: &Received) -> Option<Duration> {
        let path = &request.path;
        let is_system = [ID, SECOND].iter().any(|id| *path == format!("{ROOT}/Systems/{id}"));
        let reading = format!("GET {path} ");
        let was_read = self.exchanges.iter().any(|one| one.request.starts_with(&reading));
        let is_slow = self.has(Quirk::SystemsSlow) && is_system && !was_read;
        self.slow_readings += u32::from(is_slow);
        is_slow.then_some(SLOW_ANSWER)
    }

    pub(super) fn system(&mut self, request: &Received, rest: &[&str]) -> Answer {
        match (&request.method, rest) {
            (&Method::GET, []) => self.versioned(self.read_system()),
            (&Method::GET, ["Settings"]) if self.has(Quirk::SettingsOnly) => {
                self.versioned(json!({"Boot": self.read_boot(&self.pending)}))
            }
            (&Method::GET, ["EthernetInterfaces", ..]) if self.has(Quirk::InterfacesBroken) => {
                Answer::refusal(self, 503, "ServiceTemporarilyUnavailable", &[])
            }
            (&Method::GET, ["EthernetInterfaces"]) => {
                let member = format!("/Systems/{ID}/EthernetInterfaces/1");
                Answer::ok(json!({"Members": [self.link(&member)]}))
            }
            (&Method::GET, ["EthernetInterfaces", "1"]) => {
                Answer::ok(json!({"Id": "1", "MACAddress": MAC}))
            }
            (&Method::GET, ["ResetActionInfo"]) => Answer::ok(json!({
                "Parameters": [{"Name": "ResetType", "AllowableValues": RESET_TYPES}]
            })),
            (&Method::PATCH, []) if self.has(Quirk::SettingsOnly) => {
                Answer::refusal(self, 405, "OperationNotAllowed", &[])
            }
            (&Method::PATCH, [] | ["Settings"]) => self.change_boot(request),
            (&Method::POST, ["Actions", "ComputerSystem.Reset"]) => self.reset(request),
            _ => Answer::refusal(self, 404, "ResourceMissingAtURI", &[&request.path]),
        }
    }

    fn read_system(&self) -> Value {
        let system = format!("/Systems/{ID}");
        let mut reset =
            json!({"target": self.address(&format!("{system}/Actions/ComputerSystem.Reset"))});
        if self.has(Quirk::ResetTypesElsewhere) {
            reset["@Redfish.ActionInfo"] =
                json!(self.address(&format!("{system}/ResetActionInfo")));
        } else if !self.has(Quirk::OnRefused) {
            reset["ResetType@Redfish.AllowableValues"] = json!(RESET_TYPES);
        }
        let mut body = json!({
            "@odata.id": self.address(&system), "Id": ID, "Name": NAME, "UUID": self.uuid,
            "EthernetInterfaces": self.link(&format!("{system}/EthernetInterfaces")),
            "PowerState": if self.is_on { "On" } else { "Off" },
            "Boot": self.read_boot(&self.boot),
            "Actions": {"#ComputerSystem.Reset": reset},
            "VirtualMedia": self.link(&format!("{system}/VirtualMedia")),
        });
        if self.has(Quirk::SettingsOnly) {
            let settings = self.link(&format!("{system}/Settings"));
            body["@Redfish.Settings"] = json!({"SettingsObject": settings});
        }
        body
    }

    fn read_boot(&self, boot: &Boot) -> Value {
        let Boot { enabled, target, mode } = boot;
        let mut body =
            json!({"BootSourceOverrideEnabled": enabled, "BootSourceOverrideTarget": target});
        if !mode.is_empty() {
            body["BootSourceOverrideMode"] = json!(mode);
        }
        if self.has(Quirk::ModesListed) {
            body["BootSourceOverrideMode@Redfish.AllowableValues"] = json!(["Legacy", "UEFI"]);
        }
        if self.has(Quirk::NoNetworkBoot) {
            body["BootSourceOverrideTarget@Redfish.AllowableValues"] = json!(["None", "Hdd"]);
        }
        body
    }

    fn change_boot(&mut self, request: &Received) -> Answer {
        if self.is_read_only() {
            return Answer::refusal(self, 403, "InsufficientPrivilege", &[]);
        }
        if let Some(refusal) = self.condition(request) {
            return refusal;
        }
        let text = |name: &str| {
            Some(
                request
                    .value("Boot")?
                    .get(format!("BootSourceOverride{name}"))?
                    .as_str()?
                    .to_owned(),
            )
        };
        let (enabled, target, mode) = (text("Enabled"), text("Target"), text("Mode"));
        let is_cleared = enabled.as_deref() == Some("Disabled");
        const MODE: &str = "BootSourceOverrideMode";
        if mode.is_none() && self.has(Quirk::ModeRequired) {
            return Answer::refusal(self, 400, "PropertyMissing", &[MODE]);
        }
        if mode.is_some() && self.has(Quirk::ModeRefused) {
            return Answer::refusal(self, 400, "PropertyNotWritable", &[MODE]);
        }
        if is_cleared && target.is_none() && self.has(Quirk::ClearNeedsTarget) {
            return Answer::refusal(self, 400, "PropertyMissing", &["BootSourceOverrideTarget"]);
        }
        let is_ignored = mode.is_some() && self.has(Quirk::ModeIgnored)
            || is_cleared && self.has(Quirk::ClearIgnored);
        if is_ignored {
            return Answer::done();
        }
        let falls_back = self.has(Quirk::ModeFallsToLegacy) && mode.is_none();
        let is_continuous = self.has(Quirk::AlwaysContinuous) && !is_cleared;
        let is_unreported = self.has(Quirk::ModeUnreported);
        let in_settings = self.has(Quirk::SettingsOnly);
        let boot = if in_settings { &mut self.pending } else { &mut self.boot };
        boot.enabled =
            if is_continuous { "Continuous".into() } else { enabled.unwrap_or_default() };
        boot.target = target.unwrap_or_else(|| boot.target.clone());
        if falls_back {
            boot.mode = "Legacy".into();
        } else if let Some(mode) = mode.filter(|_| !is_unreported) {
            boot.mode = mode;
        }
        self.version += 1;
        Answer::done()
    }

    fn reset(&mut self, request: &Received) -> Answer {
        if self.is_read_only() {
            return Answer::refusal(self, 403, "InsufficientPrivilege", &[]);
        }
        let reset = request.value("ResetType").and_then(Value::as_str).unwrap_or_default();
        let is_known = RESET_TYPES.contains(&reset);
        if !is_known || reset == "On" && self.has(Quirk::OnRefused) {
            let arguments = [reset, "ResetType", "ComputerSystem.Reset"];
            return Answer::refusal(self, 400, "ActionParameterNotSupported", &arguments);
        }
        if self.has(Quirk::ResetIsTask) {
            self.task = Some(Task { reset: reset.to_owned(), readings: 0 });
            return self.task_answer();
        }
        self.carry_out(reset);
        Answer::done()
    }

    fn task_answer(&self) -> Answer {
        let headers = vec![("location", self.address("/Tasks/1")), ("retry-after", "0".into())];
        Answer { status: 202, headers, body: json!({"TaskState": "Running"}) }
    }

    pub(super) fn read_task(&mut self) -> Answer {
        let Some(task) = &mut self.task else {
            return Answer::refusal(self, 404, "ResourceMissingAtURI", &["/Tasks/1"]);
        };
        task.readings += 1;
        if task.readings < 2 {
            return self.task_answer();
        }
        let reset = task.reset.clone();
        self.task = None;
        self.carry_out(&reset);
        Answer::ok(json!({"TaskState": "Completed"}))
    }

    fn carry_out(&mut self, reset: &str) {
        self.is_on = matches!(reset, "On" | "ForceOn" | "ForceRestart");
    }
}
