package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/spf13/viper"
)

const (
	flagConfig = "config"
	envPrefix  = "SUREHAND"
)

// apply gives every flag that was not typed its value from the environment or
// the file of settings.
func apply(c *cobra.Command) error {
	env := viper.New()
	env.SetEnvPrefix(envPrefix)
	env.SetEnvKeyReplacer(strings.NewReplacer("-", "_", ".", "_"))
	env.AutomaticEnv()

	file := viper.New()
	path := c.Flag(flagConfig).Value.String()
	if path == "" {
		path = env.GetString(flagConfig)
	}
	if path != "" {
		file.SetConfigFile(path)
		file.SetConfigType("yaml")
		if err := file.ReadInConfig(); err != nil {
			return fmt.Errorf("settings: %w", err)
		}
		if err := checkKeys(c.Root(), file); err != nil {
			return fmt.Errorf("settings in %s: %w", path, err)
		}
	}
	var failed []error
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == flagConfig || f.Name == "help" || f.Name == "version" {
			return
		}
		failed = append(failed, fill(c, f, env, file))
	})
	return errors.Join(failed...)
}

// fill takes the first source that has the flag.
func fill(c *cobra.Command, f *pflag.Flag, env, file *viper.Viper) error {
	for _, source := range []*viper.Viper{env, file} {
		for _, key := range []string{c.Name() + "." + f.Name, f.Name} {
			if !source.IsSet(key) {
				continue
			}
			value := source.GetString(key)
			if f.Value.Type() == "stringArray" || f.Value.Type() == "stringSlice" {
				value = strings.Join(source.GetStringSlice(key), ",")
			}
			if err := c.Flags().Set(f.Name, value); err != nil {
				return fmt.Errorf("setting %s: %w", key, err)
			}
			return nil
		}
	}
	return nil
}

// checkKeys refuses settings that nobody reads: most are typing errors.
func checkKeys(root *cobra.Command, file *viper.Viper) error {
	known := map[string]bool{}
	for _, c := range append(root.Commands(), root) {
		for _, flags := range []*pflag.FlagSet{c.Flags(), root.PersistentFlags()} {
			flags.VisitAll(func(f *pflag.Flag) {
				known[f.Name] = true
				known[c.Name()+"."+f.Name] = true
			})
		}
	}
	var unknown []string
	for _, key := range file.AllKeys() {
		if !known[key] {
			unknown = append(unknown, key)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return fmt.Errorf("no command has a flag for %s", strings.Join(unknown, ", "))
	}
	return nil
}
