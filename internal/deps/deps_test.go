// Package deps checks what users of the library link.
package deps

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLibrariesLinkOnlyCPUIDAndSys(t *testing.T) {
	const ours = "github.com/lowbit-go/lowbit"
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}",
		ours+"/kernels/...", ours+"/optim", ours+"/codebook", ours+"/bf16", ours+"/amd64", ours+"/arm64",
		ours+"/cuda", ours+"/metal", ours+"/shard").Output()
	require.NoError(t, err)
	packages := strings.Fields(string(out))
	require.Contains(t, packages, ours+"/kernels/reference")
	for _, path := range packages {
		allowed := false
		for _, prefix := range []string{ours, "github.com/klauspost/cpuid/v2", "golang.org/x/sys"} {
			allowed = allowed || path == prefix || strings.HasPrefix(path, prefix+"/")
		}
		require.Truef(t, allowed, "a user of the library would link %s", path)
		for _, house := range []string{"/fuzz", "/bench", "/cmd", "/internal/testmem", "/internal/golden", "/internal/lm"} {
			require.Falsef(t, strings.HasPrefix(path, ours+house), "a user of the library would link %s", path)
		}
	}
}
