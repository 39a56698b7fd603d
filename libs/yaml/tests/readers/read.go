// Reads YAML with go-yaml: a JSON array of texts on standard input, a JSON array of their values on standard output.
// record.sh makes a second program of it, which imports the third version.
//
// A value that JSON has not is shown as {"not JSON": its type and text}, a text that is refused as {"refused": the reason}.
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strings"

	"gopkg.in/yaml.v2"
)

func shown(value interface{}) interface{} {
	switch value := value.(type) {
	case []interface{}:
		items := make([]interface{}, len(value))
		for i, item := range value {
			items[i] = shown(item)
		}
		return items
	case map[string]interface{}:
		fields := map[string]interface{}{}
		for key, item := range value {
			fields[key] = shown(item)
		}
		return fields
	case map[interface{}]interface{}:
		fields := map[string]interface{}{}
		for key, item := range value {
			text, isText := key.(string)
			if !isText {
				return map[string]string{"not JSON": fmt.Sprintf("%T %v", value, value)}
			}
			fields[text] = shown(item)
		}
		return fields
	case float64:
		if math.IsNaN(value) || math.IsInf(value, 0) {
			return map[string]string{"not JSON": fmt.Sprintf("%T %v", value, value)}
		}
		return value
	case nil, bool, string, int, int64, uint64:
		return value
	default:
		return map[string]string{"not JSON": fmt.Sprintf("%T %v", value, value)}
	}
}

func read(text string) interface{} {
	var value interface{}
	if err := yaml.Unmarshal([]byte(text), &value); err != nil {
		return map[string]string{"refused": strings.Split(err.Error(), "\n")[0]}
	}
	return shown(value)
}

func main() {
	var texts []string
	if err := json.NewDecoder(os.Stdin).Decode(&texts); err != nil {
		panic(err)
	}
	values := make([]interface{}, len(texts))
	for i, text := range texts {
		values[i] = read(text)
	}
	if err := json.NewEncoder(os.Stdout).Encode(values); err != nil {
		panic(err)
	}
}
