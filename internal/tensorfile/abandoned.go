package tensorfile

import (
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// temporaryPrefix begins the names of the temporary files of one output, which may itself
// have a name of any length. Those of a temporary file have its output's.
func temporaryPrefix(path string) string {
	base := filepath.Base(path)
	if temporaryName.MatchString(base) {
		return base[:strings.LastIndexByte(base, '-')+1]
	}
	name := fnv.New64a()
	name.Write([]byte(base))
	return fmt.Sprintf(".lowbit-%016x-", name.Sum64())
}

var temporaryName = regexp.MustCompile(`^\.lowbit-[0-9a-f]{16}-[A-Z2-7]+\.tmp$`)

// begin makes a temporary file beside path, which stays locked until it is closed or the
// process ends: what is not locked was abandoned.
func begin(path string) (*os.File, error) {
	folder, prefix := filepath.Split(path)
	prefix = temporaryPrefix(prefix)
	removeAbandoned(folder, prefix)
	for {
		f, err := os.OpenFile(folder+prefix+rand.Text()+".tmp", os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o666)
		if err != nil {
			return nil, err
		}
		lock(f)
		if sameFile(f) { // nobody took it for abandoned before it was locked
			return f, nil
		}
		f.Close()
	}
}

// removeAbandoned removes the temporary files of this output that killed processes left.
// What it cannot remove stays.
func removeAbandoned(folder, prefix string) {
	entries, _ := os.ReadDir(filepath.Join(folder, "."))
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), prefix) {
			removeUnlocked(folder + entry.Name())
		}
	}
}

// removeIfThere removes a temporary file that is not locked any more, if nobody else has.
func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// sameFile tells whether an open file still has its name.
func sameFile(f *os.File) bool {
	named, err := os.Stat(f.Name())
	if err != nil {
		return false
	}
	open, err := f.Stat()
	return err == nil && os.SameFile(named, open)
}
