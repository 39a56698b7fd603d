# Reads YAML with Ruby's Psych: a JSON array of texts on standard input, a JSON array of their values on standard output.
#
# A value that JSON has not is shown as {"not JSON": its type and text}, a text that is refused as {"refused": the reason}.

require "date"
require "json"
require "psych"

def shown(value)
  case value
  when Array then value.map { |item| shown(item) }
  when Hash
    return { "not JSON" => "Hash #{value}" } unless value.keys.all?(String)
    value.transform_values { |item| shown(item) }
  when nil, true, false, String, Integer then value
  when Float then value.finite? ? value : { "not JSON" => "Float #{value}" }
  else { "not JSON" => "#{value.class} #{value}" }
  end
end

def read(text)
  shown(Psych.safe_load(text, permitted_classes: [Date, Time, Symbol]))
rescue StandardError => error
  { "refused" => error.message.lines.first.chomp }
end

if ARGV == ["--version"]
  puts "Psych #{Psych::VERSION}, libyaml #{Psych.libyaml_version.join(".")}"
else
  $stdin.set_encoding("UTF-8")
  puts JSON.generate(JSON.parse($stdin.read).map { |text| read(text) })
end
