//! The readings of a system (DSP2046, ComputerSystem) that power and boot need. No property has to be present.

use serde_json::Value;
use tinwright::power::v1::get_power_state_response::PowerState;

use super::media::VirtualDrive;
use super::response::{ETag, link};
use crate::bmc_text;

/// The power state of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Power {
    /// On.
    On,
    /// Off.
    Off,
    /// Changing, paused, or not reported.
    #[default]
    Changing,
}

impl From<Power> for PowerState {
    fn from(power: Power) -> Self {
        match power {
            Power::On => Self::On,
            Power::Off => Self::Off,
            Power::Changing => Self::Changing,
        }
    }
}

/// The protocol of a reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Redfish.
    #[default]
    Redfish,
    /// IPMI, whose commands and boot flags are translated to Redfish's values.
    Ipmi,
}

/// A boot override, with Redfish's values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootOverride {
    /// `Disabled`, `Once` or `Continuous`.
    pub enabled: String,
    /// The boot device.
    pub target: String,
    /// `UEFI` or `Legacy`.
    pub mode: String,
    /// The file of a UEFI HTTP boot; empty if there is none.
    pub http_url: String,
    /// The targets that the BMC lists as allowed; empty if it lists none.
    pub targets: Vec<String>,
    /// The modes that the BMC lists as allowed; empty if it lists none.
    pub modes: Vec<String>,
}

/// One reading of a system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct System {
    /// The protocol it was read by.
    pub protocol: Protocol,
    /// SMBIOS UUID of the machine, in lower case; empty if not reported, or a placeholder.
    pub uuid: String,
    /// The power state.
    pub power: Power,
    /// The link of the reset action.
    pub reset: Option<String>,
    /// The reset types that the BMC lists as allowed; empty if it lists none.
    pub reset_types: Vec<String>,
    /// The link of the resource that lists the reset types, if the system does not.
    pub action_info: Option<String>,
    /// The time of the last reset; empty if not reported.
    pub reset_time: String,
    /// The boot override in force.
    pub boot: BootOverride,
    /// The link of the settings for the next start.
    pub settings: Option<String>,
    /// The boot override for the next start.
    pub pending: Option<BootOverride>,
    /// The virtual drive, if it was asked for and there is one.
    pub drive: Option<VirtualDrive>,
    /// The version of the system resource.
    pub etag: ETag,
    /// The version of the settings resource.
    pub settings_etag: ETag,
}

impl System {
    /// Reads the system in `body`.
    pub fn read(body: &Value, etag: ETag) -> Self {
        let action = body.pointer("/Actions/#ComputerSystem.Reset").unwrap_or(&Value::Null);
        let string = |name: &str| Some(action.get(name)?.as_str()?.to_owned());
        let reset_types = allowable(action, "ResetType");
        let settings = body.get("@Redfish.Settings");
        Self {
            protocol: Protocol::Redfish,
            uuid: bmc_text::uuid(&text(body, "UUID")),
            power: match text(body, "PowerState").as_str() {
                "On" => Power::On,
                "Off" => Power::Off,
                _ => Power::Changing,
            },
            reset: string("target"),
            action_info: string("@Redfish.ActionInfo").filter(|_| reset_types.is_empty()),
            reset_types,
            reset_time: text(body, "LastResetTime"),
            boot: BootOverride::read(body),
            settings: settings.and_then(|settings| link(settings, "SettingsObject")),
            pending: None,
            drive: None,
            etag,
            settings_etag: ETag::default(),
        }
    }
}

impl BootOverride {
    /// The state of an override that the BMC does not report as valid: IPMI only.
    pub const NOT_VALID: &str = "NotValid";

    /// True if the BMC reports a boot mode, or lists those that are allowed.
    pub fn names_modes(&self) -> bool {
        !self.mode.is_empty() || !self.modes.is_empty()
    }

    /// Reads the override of the system, or of its settings, in `body`.
    pub fn read(body: &Value) -> Self {
        let boot = body.get("Boot").unwrap_or(&Value::Null);
        Self {
            enabled: text(boot, "BootSourceOverrideEnabled"),
            target: text(boot, "BootSourceOverrideTarget"),
            mode: text(boot, "BootSourceOverrideMode"),
            http_url: text(boot, "HttpBootUri"),
            targets: allowable(boot, "BootSourceOverrideTarget"),
            modes: allowable(boot, "BootSourceOverrideMode"),
        }
    }
}

/// Returns the reset types that an ActionInfo resource lists.
pub fn allowable_reset_types(info: &Value) -> Vec<String> {
    let parameters = info.get("Parameters").and_then(Value::as_array);
    let mut parameters = parameters.into_iter().flatten();
    let reset = parameters.find(|parameter| text(parameter, "Name") == "ResetType");
    reset.map(|reset| texts(reset.get("AllowableValues"))).unwrap_or_default()
}

fn text(object: &Value, name: &str) -> String {
    object.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn allowable(object: &Value, name: &str) -> Vec<String> {
    texts(object.get(format!("{name}@Redfish.AllowableValues")))
}

fn texts(list: Option<&Value>) -> Vec<String> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn without_a_known_power_state_a_system_is_changing() {
        assert_eq!(System::read(&json!(null), ETag::default()), System::default());
        assert_eq!(
            System::read(&json!({"PowerState": null}), ETag::default()).power,
            Power::Changing
        );
        assert_eq!(
            System::read(&json!({"PowerState": "PoweringOff"}), ETag::default()).power,
            Power::Changing
        );
    }

    #[test]
    fn reset_types_are_read_from_the_action_or_else_its_action_info() {
        let reset = json!({
            "target": "/r", "ResetType@Redfish.AllowableValues": ["On"], "@Redfish.ActionInfo": "/i"
        });
        let here =
            System::read(&json!({"Actions": {"#ComputerSystem.Reset": reset}}), ETag::default());
        assert_eq!((here.reset_types, here.action_info), (vec!["On".into()], None));
        let reset = json!({"target": "/r", "@Redfish.ActionInfo": "/i"});
        let there =
            System::read(&json!({"Actions": {"#ComputerSystem.Reset": reset}}), ETag::default());
        assert_eq!((there.reset_types, there.action_info), (vec![], Some("/i".into())));
        let info = json!({"Parameters": [{"Name": "ResetType", "AllowableValues": ["On", 1]}]});
        assert_eq!(allowable_reset_types(&info), ["On"]);
    }

    proptest! {
        #[test]
        fn any_json_can_be_read(text in "[\\[\\]{}:,\"@a-zA-Z0-9. ]{0,80}") {
            let body: Value = serde_json::from_str(&text).unwrap_or(Value::String(text));
            System::read(&body, ETag::default());
            System::read(&json!({"Boot": body, "Actions": body}), ETag::default());
        }
    }
}
