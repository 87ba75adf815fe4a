package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/klauspost/cpuid/v2"

	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/lowbit-go/lowbit/kernels"
)

type infoCmd struct {
	JSON bool `name:"json" help:"Print the table as one JSON object."`
}

func (*infoCmd) Help() string {
	return `LOWBIT_DISABLE, a comma-separated list of features, turns off what needs them. With --json all implementations of each
operation are listed, and what they need.

Example:

    LOWBIT_DISABLE=avx512 lowbit info
`
}

type info struct {
	Version    string          `json:"version"`
	Go         string          `json:"go"`
	OS         string          `json:"os"`
	Arch       string          `json:"arch"`
	CPU        infoCPU         `json:"cpu"`
	Disabled   []string        `json:"disabled"`
	Devices    []infoDevice    `json:"devices"`
	Operations []infoOperation `json:"operations"`
}

type infoCPU struct {
	Brand    string   `json:"brand"`
	Features []string `json:"features"`
	Cores    int      `json:"cores"`
}

type infoDevice struct {
	Kind        string `json:"kind"`
	Name        string `json:"name"`
	MemoryBytes int64  `json:"memory_bytes"`
}

type infoOperation struct {
	Name            string               `json:"name"`
	Variant         string               `json:"variant"`
	Class           string               `json:"class"`
	Selected        string               `json:"selected"`
	Implementations []infoImplementation `json:"implementations"`
}

type infoImplementation struct {
	Name      string   `json:"name"`
	Available bool     `json:"available"`
	Needs     []string `json:"needs"`
	Why       string   `json:"why"`
}

func (c *infoCmd) Run(e *env) error {
	info := newInfo()
	if c.JSON {
		return e.printJSON(info)
	}
	return info.print(e)
}

func newInfo() info {
	disabled, _ := cpufeature.Disabled()
	info := info{
		Version: version(), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH,
		CPU:      infoCPU{processorName(), cpufeature.Detected.Names(), runtime.NumCPU()},
		Disabled: disabled.Names(), Devices: []infoDevice{},
	}
	for _, row := range kernels.Table() {
		operation := infoOperation{row.Name, row.Variant, row.Class.String(), row.Selected, []infoImplementation{}}
		for _, i := range row.Implementations {
			operation.Implementations = append(operation.Implementations, infoImplementation{i.Name, i.Available, i.Needs, why(row, i)})
		}
		info.Operations = append(info.Operations, operation)
	}
	return info
}

// why says why an implementation is used or not.
func why(row kernels.Row, i kernels.Implementation) string {
	switch {
	case !i.Available:
		return unavailable(i.Missing)
	case i.Name != row.Selected:
		return row.Selected + " comes first"
	case len(row.Implementations) == 1:
		return "there is no other"
	case i.Name == row.Implementations[0].Name:
		return "the best there is"
	default:
		return "the best of those that can run"
	}
}

func unavailable(missing []string) string {
	lacking, off := []string{}, []string{}
	for _, name := range missing {
		if feature, _ := cpufeature.Parse(name); cpufeature.Detected.Has(feature) {
			off = append(off, name)
		} else {
			lacking = append(lacking, name)
		}
	}
	reasons := []string{}
	if len(lacking) > 0 {
		reasons = append(reasons, "the processor lacks "+strings.Join(lacking, ", "))
	}
	if len(off) > 0 {
		reasons = append(reasons, "LOWBIT_DISABLE turns off "+strings.Join(off, ", "))
	}
	return strings.Join(reasons, "; ")
}

func version() string {
	build, ok := debug.ReadBuildInfo()
	if !ok || build.Main.Version == "" {
		return "(devel)"
	}
	return build.Main.Version
}

func (i info) print(e *env) error {
	rows := [][]string{{"OPERATION", "VARIANT", "CLASS", "USES", "WHY"}}
	for _, o := range i.Operations {
		rows = append(rows, []string{o.Name, orDash(o.Variant), o.Class, o.Selected, o.why()})
	}
	_, err := fmt.Fprintf(e.stdout, "lowbit %s, %s, %s/%s\nprocessor: %s, %d cores\nfeatures: %s\ndisabled: %s\n\n",
		i.Version, i.Go, i.OS, i.Arch, orDash(i.CPU.Brand), i.CPU.Cores, orDash(strings.Join(i.CPU.Features, " ")), orDash(strings.Join(i.Disabled, " ")))
	if err != nil {
		return err
	}
	return printTable(e.stdout, rows)
}

// why says why nothing better is used; which others there are, only the JSON tells.
func (o infoOperation) why() string {
	reasons := []string{}
	for _, i := range o.Implementations {
		if i.Name == o.Selected && len(reasons) == 0 {
			return i.Why
		} else if !i.Available {
			reasons = append(reasons, i.Name+": "+i.Why)
		}
	}
	return strings.Join(reasons, "; ")
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// processorName is the brand and, since that of a virtual machine says little, the numbers that
// tell one generation from another.
func processorName() string {
	if cpuid.CPU.Family == 0 {
		return cpuid.CPU.BrandName
	}
	return strings.TrimSpace(fmt.Sprintf("%s, family %d, model %d", cpuid.CPU.BrandName, cpuid.CPU.Family, cpuid.CPU.Model))
}
