# docs/reference/enrolment-bmc.md, with two machines behind one emulated BMC: BMC is its URL, USER and PASSWORD are its login.
#
# It does not speak IPMI, which services/power/tests/bmc does: the second machine is asked by Redfish here.
tinwright serve
echo "$PASSWORD" > pw
systems="$BMC/redfish/v1/Systems"
first="$systems/00000000-0000-4000-8000-000000000000"
second="$systems/00000000-0000-4000-8000-000000000001"
sed "s,https://198.51.100.2,$first,; s,ipmi://198.51.100.3,$second,; s/,admin,change-me/,$USER,$PASSWORD/" docs/examples/bmcs.csv > bmcs.csv
block docs/reference/enrolment-bmc.md 'Enrolment by the BMC' "
s,https://198.51.100.2 --username admin,$first --username $USER --password-file pw,
s,ipmi://198.51.100.3 --username admin,$second --username $USER,"
tinwright hardware get rack7
tinwright power bmc list
