// health FLUX LUA OBJECT...: a line for each object, how Flux and Argo CD see it by these files.
//
// Expressions are parsed and evaluated as github.com/fluxcd/pkg/runtime/cel does (0.122), the script runs as in
// github.com/argoproj/argo-cd/v3/util/lua: in libraries base, package, table and os alone.
package main

import (
	"fmt"
	"os"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
	lua "github.com/yuin/gopher-lua"
	"sigs.k8s.io/yaml"
)

type object = map[string]any

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func read(path string) object {
	var value object
	must(0, yaml.Unmarshal(must(os.ReadFile(path)), &value))
	return value
}

// flux: the first that holds, in RFC 0009's order; without an answer the object is waited for.
func flux(rules, document object) string {
	env := must(cel.NewEnv(cel.HomogeneousAggregateLiterals(), cel.EagerlyValidateDeclarations(true),
		cel.DefaultUTCTimeZone(true), cel.CrossTypeNumericComparisons(true), cel.OptionalTypes(),
		ext.Strings(), ext.Sets(), ext.Encoders()))
	for _, row := range [][2]string{{"inProgress", "InProgress"}, {"failed", "Failed"}, {"current", "Current"}} {
		tree, issues := env.Parse(rules[row[0]].(string))
		must(0, issues.Err())
		value, _, err := must(env.Program(tree)).Eval(document)
		if err != nil {
			return "Unknown"
		}
		if value.Value().(bool) {
			return row[1]
		}
	}
	return "InProgress"
}

func argo(script string, document object) (string, string) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{lua.LoadLibName: lua.OpenPackage, lua.BaseLibName: lua.OpenBase,
		lua.TabLibName: lua.OpenTable, lua.OsLibName: lua.OpenOs} {
		must(0, state.CallByParam(lua.P{Fn: state.NewFunction(open), Protect: true}, lua.LString(name)))
	}
	state.SetGlobal("obj", value(state, document))
	must(0, state.DoString(script))
	health := state.Get(-1).(*lua.LTable)
	return health.RawGetString("status").String(), health.RawGetString("message").String()
}

func value(state *lua.LState, from any) lua.LValue {
	table := state.NewTable()
	switch typed := from.(type) {
	case string:
		return lua.LString(typed)
	case float64:
		return lua.LNumber(typed)
	case bool:
		return lua.LBool(typed)
	case []any:
		for _, item := range typed {
			table.Append(value(state, item))
		}
	case object:
		for key, item := range typed {
			table.RawSetString(key, value(state, item))
		}
	default:
		return lua.LNil
	}
	return table
}

func main() {
	rules := read(os.Args[1])["spec"].(object)["healthCheckExprs"].([]any)[0].(object)
	script := string(must(os.ReadFile(os.Args[2])))
	for _, path := range os.Args[3:] {
		document := read(path)
		status, message := argo(script, document)
		fmt.Printf("%s\t%s\t%s\n", flux(rules, document), status, message)
	}
}
